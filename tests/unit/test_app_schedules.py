"""Schedules declared in code: what is checked at once, what a worker carries, what one tick does inline."""

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from penstock import Penstock, Retry, State
from penstock.model.errors import Invalid, InvalidParams, InvalidSetting, NotFound, ServerUnavailable, TooLarge
from penstock.model.ports import WorkerApi
from penstock.model.schedule import Misfire, Overlap
from penstock.model.wire.schedules import OnConflict, ScheduleRequest
from penstock.testing import inline
from penstock.worker.agent.agent import declare
from penstock.worker.protocol import Loaded


@pytest.fixture
def app() -> Penstock:
    app = Penstock("http://nobody.invalid")

    @app.job(queue="reports", timeout=60)
    def report(month: str = "latest", rows: int = 3) -> str:
        return f"{month}: {rows}"

    app.command("tidy", ["true"])
    return app


def test_a_schedule_is_declared_beside_its_handler(app: Penstock) -> None:
    declared = app.schedule(
        "nightly",
        app.handlers["report"],
        params={"rows": 7},
        cron="0 2 * * *",
        timezone="Europe/Berlin",
        overlap="skip",
        misfire=Misfire.RUN_ALL,
        misfire_cap=5,
        misfire_grace=timedelta(minutes=2),
        jitter=timedelta(seconds=30),
        start_at=datetime(2030, 1, 1, tzinfo=UTC),
        retry=Retry.fixed(max_attempts=2),
        tags=["money"],
    )
    assert app.schedules == {"nightly": declared}
    assert (declared.type, declared.cron, declared.timezone) == ("report", "0 2 * * *", "Europe/Berlin")
    assert (declared.overlap, declared.misfire, declared.misfire_cap) == (Overlap.SKIP, Misfire.RUN_ALL, 5)
    assert (declared.misfire_grace_seconds, declared.jitter_seconds) == (120, 30)
    assert msgspec.json.decode(declared.params)["rows"] == 7
    assert declared.on_conflict is OnConflict.REPLACE


@pytest.mark.parametrize("interval", [90, 90.0, timedelta(minutes=1, seconds=30)])
def test_an_interval_is_seconds_or_a_timedelta(app: Penstock, interval: timedelta | float) -> None:
    declared = app.schedule("poll", app.handlers["report"], interval=interval, after_completion=True)
    assert (declared.interval, declared.after_completion) == (90, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cron": "0 0 31 2 *"}, "31"),
        ({"cron": "99 * * * *"}, "minute"),
        ({"cron": "0 2 * * *", "timezone": "Europe/Atlantis"}, "Atlantis"),
        ({"interval": 0}, "interval"),
        ({"interval": -5}, "interval"),
        ({}, "interval= .* or cron="),
        ({"interval": 5, "cron": "@daily"}, "one of them"),
        ({"interval": 5, "timezone": "UTC"}, "one of them"),
        ({"cron": "@daily", "after_completion": True}, "one of them"),
        ({"interval": 5, "overlap": "perhaps"}, "overlap"),
        ({"interval": 5, "priority": 12}, "priority"),
        ({"interval": 5, "evry": 5}, "evry"),
        ({"interval": 5, "start_at": datetime(2030, 1, 1)}, "start_at: .* has no time zone"),  # noqa: DTZ001
        (
            {"interval": 5, "start_at": datetime(2030, 1, 2, tzinfo=UTC), "end_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "end_at",
        ),
    ],
)
def test_what_can_never_be_is_refused_where_it_is_declared(app: Penstock, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        app.schedule("never", app.handlers["report"], **options)
    assert app.schedules == {}


def test_params_that_the_handler_would_not_take_are_refused(app: Penstock) -> None:
    with pytest.raises(InvalidParams):
        app.schedule("nightly", app.handlers["report"], params={"rows": "many"}, interval=60)


def test_a_name_is_declared_once(app: Penstock) -> None:
    app.schedule("nightly", app.handlers["report"], interval=60)
    with pytest.raises(Invalid, match="declared twice"):
        app.schedule("nightly", app.handlers["report"], interval=90)


def test_a_process_that_only_imports_the_app_runs_no_scheduler_and_no_thread() -> None:
    ask = """
import sys, threading
from penstock import Penstock
app = Penstock()
@app.job
def report() -> None: ...
app.schedule("nightly", report, cron="@daily")
loaded = [name for name in sys.modules if name.startswith(("penstock.scheduler", "penstock.engine", "httpx2", "apsw"))]
print(loaded, threading.active_count())
"""
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert told.stdout == "[] 1\n"


def test_a_declared_schedule_survives_the_way_from_executor_to_agent(app: Penstock) -> None:
    declared = app.schedule("nightly", app.handlers["report"], params={"rows": 7}, cron="@daily")
    raw = msgspec.json.encode(declared)
    assert msgspec.json.encode(msgspec.json.decode(raw, type=ScheduleRequest)) == raw


class Kept:
    """A server's side of the worker: keeps what was declared, or refuses it."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.declared: list[ScheduleRequest] = []
        self._refusal = refusal

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.declared += schedules


def loaded(app: Penstock) -> Loaded:
    return Loaded((), {}, tuple(map(msgspec.json.encode, app.schedules.values())))


async def test_a_worker_brings_what_is_declared_and_leaves_pausing_to_operators(app: Penstock) -> None:
    app.schedule("nightly", app.handlers["report"], params={"rows": 7}, cron="@daily")
    worker_api = Kept()
    await declare(loaded(app), cast(WorkerApi, worker_api), 60.0)
    (brought,) = worker_api.declared
    assert (brought.name, brought.cron, brought.on_conflict) == ("nightly", "@daily", OnConflict.REPLACE)
    assert (brought.paused, brought.code_age_seconds) == (msgspec.UNSET, 60.0)


async def test_a_schedule_that_the_server_refuses_stops_the_worker_with_its_name(app: Penstock) -> None:
    app.schedule("nightly", app.handlers["report"], cron="@daily")
    with pytest.raises(InvalidSetting, match="refused: params"):
        await declare(loaded(app), cast(WorkerApi, Kept(TooLarge("params: too long"))), 60.0)
    with pytest.raises(ServerUnavailable):
        await declare(loaded(app), cast(WorkerApi, Kept(ServerUnavailable("away"))), 60.0)


async def test_an_app_without_schedules_declares_nothing(app: Penstock) -> None:
    await declare(loaded(app), cast(WorkerApi, Kept(AssertionError("asked"))), 60.0)


def test_a_tick_runs_inline_as_the_schedule_says(app: Penstock) -> None:
    app.schedule("nightly", app.handlers["report"], params={"rows": 7}, cron="@daily", priority=9, tags=["money"])
    with inline.run(app) as jobs:
        job = jobs.tick("nightly")
        assert (job.state, msgspec.json.decode(job.result)) == (State.SUCCEEDED, "latest: 7")
        (seen,) = jobs.of("report")
        assert (seen.schedule, seen.queue, seen.priority, seen.tags) == ("nightly", "reports", 9, ("money",))
        assert seen.tick_at is not None
        assert seen.timeout_seconds == 60


def test_a_schedule_that_is_not_declared_does_not_tick(app: Penstock) -> None:
    with inline.run(app) as jobs, pytest.raises(NotFound, match="no schedule 'weekly'; there are: none"):
        jobs.tick("weekly")


def test_a_job_with_an_interval_runs_inline_once(app: Penstock) -> None:
    with inline.run(app) as jobs:
        assert app.handlers["report"].using(interval=60).submit().wait().result == "latest: 3"
        assert len(jobs.all()) == 1
