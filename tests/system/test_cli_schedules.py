"""Schedules as a user has them: declared in code, run by a server, looked at and steered from the command line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Client
from tests.system.harness import ROOT, Process, Server, ending, eventually

pytestmark = pytest.mark.slow

SHOP = """
from penstock import Penstock

app = Penstock()


@app.job
async def report(rows: int = 3) -> int:
    return rows


app.schedule("often", report, interval=1, params={"rows": 7})
app.schedule("nightly", report, cron="0 2 * * *", timezone="Europe/Berlin")
"""

Command = Callable[..., str]


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop_of_schedules.py").write_text(SHOP)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "SHOP_FOLDER": str(folder)}


@pytest.fixture(scope="module")
def server(environ: dict[str, str]) -> Iterator[Server]:
    server = Server(Path(environ["SHOP_FOLDER"]) / "data", app="shop_of_schedules:app", environ=environ)
    with ending(server):
        yield server


@pytest.fixture(scope="module")
def penstock(server: Server) -> Command:
    """Run a command against the server: what it printed, having ended well."""

    def run(*words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "penstock", *words]
        environ = {**os.environ, "PENSTOCK_URL": server.url}
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT, env=environ)
        assert told.returncode == code, told.stdout + told.stderr
        return told.stdout or told.stderr

    return run


def read(penstock: Command, *words: str) -> Any:
    return json.loads(penstock("schedules", *words, "--json"))


def jobs_of(penstock: Command, name: str) -> list[str]:
    return [tick["job"] for tick in read(penstock, "history", name)["ticks"] if tick["job"]]


def test_a_declared_schedule_ticks_and_its_history_names_the_jobs(penstock: Command) -> None:
    job = eventually("a tick", lambda: jobs_of(penstock, "often"))[0]
    ended = json.loads(penstock("jobs", "watch", job, "--json").splitlines()[-1])
    assert (ended["state"], ended["result"], ended["schedule"]) == ("succeeded", 7, "often")
    assert "succeeded" in penstock("schedules", "history", "often")


def test_the_list_tells_what_comes_and_what_was(penstock: Command) -> None:
    lines = {line.split()[0]: line for line in penstock("schedules").splitlines()}
    assert set(lines) >= {"NAME", "nightly", "often"}
    assert "0 2 * * * Europe/Berlin" in lines["nightly"]
    assert "every 1 s" in lines["often"]


def test_a_worker_that_joins_again_changes_nothing(server: Server, penstock: Command, environ: dict[str, str]) -> None:
    before = read(penstock, "show", "nightly")
    worker = Process(
        "worker", "shop_of_schedules:app", "--url", server.url, folder=Path(environ["SHOP_FOLDER"]), environ=environ
    )
    with ending(worker):
        worker.says("ready")
        assert read(penstock, "show", "nightly") == before
        assert {item["name"] for item in read(penstock, "list")["schedules"]} >= {"nightly", "often"}


def test_what_an_operator_paused_stays_paused(server: Server, penstock: Command, environ: dict[str, str]) -> None:
    penstock("schedules", "pause", "nightly")
    worker = Process(
        "worker", "shop_of_schedules:app", "--url", server.url, folder=Path(environ["SHOP_FOLDER"]), environ=environ
    )
    with ending(worker):
        worker.says("ready")
        assert read(penstock, "show", "nightly")["paused"]
    penstock("schedules", "resume", "nightly")
    assert not read(penstock, "show", "nightly")["paused"]


def test_a_life_from_create_to_delete(penstock: Command) -> None:
    made = read(penstock, "create", "yearly", "report", "rows=1", "--cron", "@yearly", "--tag", "money")
    assert (made["params"], made["tags"], made["version"]) == ({"rows": 1}, ["money"], 1)
    assert "already" in penstock("schedules", "create", "yearly", "report", "--interval", "1h", code=1)
    same = read(penstock, "create", "yearly", "report", "rows=1", "--cron", "@yearly", "--tag", "money",
                "--on-conflict", "replace")  # fmt: skip
    assert same == made
    changed = read(penstock, "update", "yearly", "--interval", "1d", "--overlap", "skip")
    assert (changed["cron"], changed["interval"], changed["overlap"], changed["tags"]) == (
        None,
        86400,
        "skip",
        ["money"],
    )
    assert changed["version"] > made["version"]
    assert len(read(penstock, "preview", "yearly", "--count", "3")["ticks"]) == 3
    assert json.loads(penstock("schedules", "trigger", "yearly", "--wait", "--json"))["result"] == 1
    filled = read(penstock, "backfill", "yearly", "--from", "2020-01-01T00:00Z", "--to", "2020-01-03T00:00Z")["ticks"]
    assert [tick["at"][:10] for tick in filled] == ["2020-01-01", "2020-01-02", "2020-01-03"]
    assert len(jobs_of(penstock, "yearly")) == 4
    penstock("schedules", "delete", "yearly")
    assert "yearly" in penstock("schedules", "show", "yearly", code=1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cron", "0 0 31 2 *"], "cron"),
        (["--cron", "@daily", "--timezone", "Europe/Atlantis"], "Atlantis"),
        (["--interval", "0"], "interval"),
        ([], "interval"),
        (["--interval", "1m", "--start", "2030-01-02", "--end", "2030-01-01"], "end_at"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_nothing_is_stored(
    penstock: Command, words: list[str], told: str
) -> None:
    said = penstock("schedules", "create", "never", "report", *words, code=1)
    assert told in said
    assert said.count("\n") == 1
    assert "never" not in {item["name"] for item in read(penstock, "list")["schedules"]}


def test_an_interval_on_a_submit_makes_a_schedule(penstock: Command) -> None:
    job = json.loads(penstock("jobs", "submit", "report", "--interval", "1h", "--json"))
    assert job["interval"] == 3600
    assert read(penstock, "show", job["schedule"])["interval"] == 3600


def test_a_scheduler_of_its_own_ticks_for_a_server_that_has_none(tmp_path: Path, environ: dict[str, str]) -> None:
    server = Server(
        tmp_path / "data", "--no-scheduler", "--executors", "1", app="shop_of_schedules:app", environ=environ
    )
    with ending(server), Client(server.url) as client:
        eventually("declared", lambda: "often" in {item.name for item in client.schedules()})
        scheduler = Process("scheduler", "--url", server.url, folder=tmp_path)
        with ending(scheduler):
            scheduler.says("scheduler")
            eventually("a few ticks", lambda: len(list(client.ticks("often"))) >= 3)
            assert scheduler.stop() == 0
        silent = len(list(client.ticks("often")))
        client.wait(client.submit("report", delay=2).id)
        assert len(list(client.ticks("often"))) == silent


def test_the_bench_times_a_crowd_that_is_due_at_once() -> None:
    command = [sys.executable, "-m", "penstock", "bench", "--parts", "due", "--scale", "0.01", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert told.returncode == 0, told.stderr
    figures = {figure["name"]: figure["value"] for figure in json.loads(told.stdout)["figures"]}
    assert 0 < figures["all dispatched after"] < 60
    assert figures["first started after"] >= 0
    assert figures["another queue meanwhile, p99"] >= figures["another queue meanwhile, p50"] > 0
