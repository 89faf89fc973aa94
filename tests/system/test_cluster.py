"""`make cluster`, small: the same processes, the same faults, the same judge."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from servers import Nginx, Postgres
from servers.launch import free_port
from tests.servers_fixtures import real_servers
from tests.system.harness import ROOT, WITHIN
from tests.watch import wait_for_ends

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def start(folder: Path, jobs: int) -> "subprocess.Popen[str]":
    # How long a recovery takes says nothing while other tests run beside it.
    size = ["--jobs", str(jobs), "--rate", "120", "--no-bars"]
    command = [sys.executable, "-m", "cluster", *size, "--folder", str(folder / "run")]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def need_servers(folder: Path) -> None:
    """Say that one is missing here, where it can become a skip."""
    Nginx(folder / "nginx", [free_port()]).command()
    Postgres(folder / "postgres")


def left_of(folder: Path) -> list[str]:
    """Processes that work in the folder or name it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "environ"]):
        known = process.info
        words = " ".join([*(known["cmdline"] or []), known["cwd"] or "", *(known["environ"] or {}).values()])
        if str(folder / "run") in words and process.status() != psutil.STATUS_ZOMBIE:
            found.append(f"{process.pid} {words[:200]}")
    return found


def test_every_promise_is_kept_while_each_part_is_killed_in_turn() -> None:
    with real_servers() as folder:
        (folder / "nginx").mkdir()
        need_servers(folder)
        run = start(folder, jobs=1500)
        try:
            said, _ = run.communicate(timeout=500)
        finally:
            run.kill()
        assert run.returncode == 0, said
        assert re.search(r"^lost +0$", said, re.MULTILINE)
        assert re.search(r"^doubled +0$", said, re.MULTILINE)
        assert "every promise was kept" in said
        assert left_of(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left_running_when_it_is_stopped(number: signal.Signals) -> None:
    with real_servers() as folder:
        (folder / "nginx").mkdir()
        need_servers(folder)
        run = start(folder, jobs=100_000)
        try:
            assert run.stdout is not None
            assert any("ready" in line for line in run.stdout)
            assert len(left_of(folder)) > 12
            os.kill(run.pid, number)
            run.communicate(timeout=60)
        finally:
            run.kill()
            run.wait()
        while left := left_of(folder):
            wait_for_ends([int(one.partition(" ")[0]) for one in left], WITHIN)
