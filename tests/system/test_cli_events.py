"""`penstock events` and `penstock jobs watch` against a real server."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.harness import ROOT, WITHIN, Server, ending

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("events")
    server = Server(folder / "data")
    with ending(server):
        yield server


def command(server: Server, *words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *words, "--url", server.url]


def penstock(server: Server, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(server, *words), capture_output=True, text=True, cwd=ROOT, timeout=WITHIN, check=False
    )


def test_past_events_are_printed_for_people_and_as_json(server: Server) -> None:
    job = penstock(server, "jobs", "submit", "mark", "n=3", "--wait", "--json")
    assert job.returncode == 0, job.stderr
    printed = penstock(server, "events", "--type", "mark").stdout.splitlines()
    assert [line.split("mark  ")[1] for line in printed] == ["queued", "queued → running", "running → succeeded"]
    events = [json.loads(line) for line in penstock(server, "events", "--json", "--items").stdout.splitlines()]
    mine = [event for event in events if event["job"] == json.loads(job.stdout)["id"]]
    assert [event["version"] for event in mine] == [1, 2, 3]
    assert mine[-1]["item"]["result"] == 3


def test_following_goes_on_until_ctrl_c(server: Server) -> None:
    words = command(server, "events", "--follow", "--json", "--since", "1s", "--state", "succeeded")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ}
    ) as following:
        assert following.stdout is not None
        job = json.loads(penstock(server, "jobs", "submit", "mark", "n=3", "--json").stdout)["id"]
        while json.loads(following.stdout.readline())["job"] != job:
            pass
        following.send_signal(signal.SIGINT)
        _, said = following.communicate(timeout=WITHIN)
    assert following.returncode == 130
    assert "Traceback" not in said


def test_an_unknown_name_is_refused_in_one_line(server: Server) -> None:
    refused = penstock(server, "events", "--type", "no such")
    assert refused.returncode == 1
    assert "type: 'no such' cannot be one" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_watching_a_job_ends_with_it(server: Server) -> None:
    job = penstock(server, "jobs", "submit", "mark", "n=4").stdout.strip()
    watched = penstock(server, "jobs", "watch", job)
    assert watched.returncode == 0, watched.stderr
    assert "succeeded" in watched.stdout.splitlines()[-1]
