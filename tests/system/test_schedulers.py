"""G6 with real processes: each tick gives exactly one job or one recorded skip, whoever dies meanwhile."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.engine.scheduler_api import AFTER_TICK_COMMIT, FAILPOINT, STATUS
from tests.system.harness import Process, Server, ending, eventually

FULL = "PENSTOCK_TEST_FULL" in os.environ
SCHEDULERS, SCHEDULES, SECONDS = (4, 200, 60) if FULL else (3, 50, 15)
KILL_EVERY = 3
STOPPED_TICKS = 60 if FULL else 5
SECOND = timedelta(seconds=1)
ALONE = {"PENSTOCK_SERVER_SCHEDULER": "false"}
"""A server that leaves the ticking to the schedulers."""

Json = dict[str, Any]


class Scheduler(Process):
    """`penstock scheduler`, ready."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__("scheduler", "--url", url, folder=folder)
        self.says("ready")


class ScheduleClient:
    """A client of schedules."""

    def __init__(self, url: str) -> None:
        self._http = httpx2.Client(base_url=url, timeout=30)

    def create(self, name: str, **more: object) -> None:
        body = {"name": name, "type": "mark", "params": {"n": 1}, "interval": 1, "tags": [name], **more}
        self._http.post("/v1/schedules", json=body).raise_for_status()

    def pause(self, name: str) -> None:
        self._http.post(f"/v1/schedules/{name}/pause").raise_for_status()

    def ticks(self, name: str) -> list[Json]:
        """Oldest first."""
        answer = self._http.get(f"/v1/schedules/{name}/ticks", params={"limit": 500})
        ticks: list[Json] = answer.raise_for_status().json()["ticks"]
        return ticks[::-1]

    def jobs(self, name: str) -> list[Json]:
        answer = self._http.get("/v1/jobs", params={"tag": name, "limit": 500})
        jobs: list[Json] = answer.raise_for_status().json()["jobs"]
        return jobs

    def wait(self, id: str) -> Json:
        """The job once it has ended."""
        job: Json = self._http.get(f"/v1/jobs/{id}", params={"wait": 20}).raise_for_status().json()
        return job

    def close(self) -> None:
        self._http.close()


@contextmanager
def open_client(url: str) -> Iterator[ScheduleClient]:
    opened = ScheduleClient(url)
    try:
        yield opened
    finally:
        opened.close()


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def check_one_job_or_skip_each(at: ScheduleClient, name: str) -> list[Json]:
    """No tick twice, no tick silent, never early; the jobs of the schedule."""
    ticks, jobs = at.ticks(name), at.jobs(name)
    instants = [instant(tick["at"]) for tick in ticks]
    assert instants == [instants[0] + n * SECOND for n in range(len(instants))], f"{name}: a gap or a double"
    assert all((tick["job"] is None) != (tick["skipped"] is None) for tick in ticks)
    recorded = sorted(tick["job"] for tick in ticks if tick["job"])
    assert recorded == sorted(job["id"] for job in jobs), f"{name}: jobs and history differ"
    assert all(instant(job["created_at"]) >= instant(job["tick_at"]) for job in jobs)
    return jobs


def start_delays(jobs: list[Json], moment: str) -> str:
    late = sorted(
        (instant(job[moment]) - instant(job["tick_at"])).total_seconds() * 1000 for job in jobs if job[moment]
    )
    return (
        f"{moment}: p50 {late[len(late) // 2]:.1f} ms, p99 {late[len(late) * 99 // 100]:.1f} ms, max {late[-1]:.1f} ms"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_tick_once_while_schedulers_are_killed(tmp_path: Path) -> None:
    server, rng = Server(tmp_path / "data", environ=ALONE), random.Random(2026)
    started: list[Process] = [server]
    names = [f"s{number}" for number in range(SCHEDULES)]
    try:
        schedulers = [Scheduler(server.url, tmp_path) for _ in range(SCHEDULERS)]
        started += schedulers
        with open_client(server.url) as at:
            for name in names:
                at.create(name, misfire="run_all")
            for ticks in range(KILL_EVERY, SECONDS + 1, KILL_EVERY):
                eventually(f"{ticks} ticks", lambda ticks=ticks: len(at.ticks(names[0])) >= ticks)  # type: ignore[misc]
                victim = rng.randrange(SCHEDULERS)
                schedulers[victim].kill()
                schedulers[victim] = Scheduler(server.url, tmp_path)
                started.append(schedulers[victim])
            for name in names:
                at.pause(name)
            jobs = [job for name in names for job in check_one_job_or_skip_each(at, name)]
            assert len(jobs) >= SCHEDULES * (SECONDS - 2)
            print(f"{len(jobs)} ticks;", start_delays(jobs, "created_at"), ";", start_delays(jobs, "started_at"))  # noqa: T201
    finally:
        with ending(*started):
            pass


@pytest.mark.slow
def test_a_scheduler_that_was_stopped_doubles_nothing_and_misses_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", environ=ALONE)
    stopped, going = Scheduler(server.url, tmp_path), Scheduler(server.url, tmp_path)
    with ending(stopped, going, server), open_client(server.url) as at:
        at.create("s", misfire="run_all")
        eventually("ticks with both", lambda: len(at.ticks("s")) >= 2)
        stopped.signal_all(signal.SIGSTOP)
        eventually("ticks without one", lambda: len(at.ticks("s")) >= 2 + STOPPED_TICKS, within=100)
        stopped.signal_all(signal.SIGCONT)
        going.kill()
        eventually("ticks with the other", lambda: len(at.ticks("s")) >= 4 + STOPPED_TICKS)
        at.pause("s")
        assert len(check_one_job_or_skip_each(at, "s")) >= 4 + STOPPED_TICKS


@pytest.mark.slow
def test_nothing_is_lost_between_commit_and_publish(tmp_path: Path) -> None:
    doomed = Server(tmp_path / "data", environ={FAILPOINT: AFTER_TICK_COMMIT})
    with ending(doomed):
        with open_client(doomed.url) as at:
            at.create("s")
        assert doomed.popen.wait(30) == STATUS
    server = Server(tmp_path / "data")
    with ending(server), open_client(server.url) as at:
        first = at.ticks("s")[0]["job"]
        assert at.wait(first)["state"] == "succeeded"
        at.pause("s")
        check_one_job_or_skip_each(at, "s")
