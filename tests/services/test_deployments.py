"""While a deployment rolls: workers of two versions side by side, and neither fails what is the other's."""

import asyncio
import random
from datetime import timedelta
from pathlib import Path

from msgspec import Raw
from msgspec.structs import replace

from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.engine.type_fit import FIRST_WAIT
from penstock.model.clock import SystemClock
from penstock.model.declarations import EARLIER_COUNTS_FOR, signature_of
from penstock.model.job import Claim, ErrorCode, Job, JobError, Loss
from penstock.model.lifecycle import State
from penstock.model.schedule import Every
from penstock.model.wire.schedules import ScheduleChange, ScheduleRequest
from penstock.model.workers import JobType, WorkRequest
from penstock.objects.folder import FolderObjects
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import ADD, LONG, ZERO, claim, claim_one, dispatcher, failure, submit, success, worker
from tests.services.fake_worker_api import FakeWorkerApi
from tests.services.running_worker import run_worker

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
NO_FIT = "no worker that is up takes these params"
UNFIT = JobError(ErrorCode.INVALID_PARAMS, "params do not fit", retryable=False)


def add(*names: str, required: tuple[str, ...] = ("a",)) -> JobType:
    """The type `add`, as a version of the app declares it whose handler takes these."""
    properties = {name: {"type": "integer"} for name in names}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return replace(ADD, params_schema=schema)


OLD = add("a", "b")
OPTIONAL = add("a", "b", "c")
REQUIRED = add("a", "b", "c", required=("a", "c"))


async def join(engine: Engine, name: str, declared: JobType, age: timedelta = timedelta(0)) -> None:
    signatures = {"add": signature_of(declared.params_schema)}
    one = replace(worker(name, "add"), signatures=signatures, code_age_seconds=age.total_seconds())
    await engine.worker_api.join(one, [declared])


async def refuse(engine: Engine, claimed: Claim) -> list[Loss]:
    """What a worker is told that could not begin a job."""
    return [one.loss for one in await engine.worker_api.settle([failure(claimed, UNFIT)])]


async def later(engine: Engine, clock: SimulatedClock, span: timedelta = SECOND) -> None:
    clock.advance(span)
    await dispatcher(engine).step()


async def reason(engine: Engine, job: Job) -> str | None:
    return (await engine.jobs.item(await engine.jobs.get(job.id))).reason


async def test_an_older_worker_gives_back_a_job_with_a_new_param_and_a_newer_one_runs_it(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "old", OLD)
    clock.advance(SECOND)
    await join(engine, "new", OPTIONAL)
    job = await submit(engine, params={"a": 1, "c": 2})
    assert await refuse(engine, await claim_one(engine, "old")) == [Loss.GIVEN_BACK]
    waiting = await engine.jobs.item(await engine.jobs.get(job.id))
    assert (waiting.type, waiting.state, waiting.attempt) == ("add", State.QUEUED, 0)
    await later(engine, clock)
    assert await claim(engine, "old") == []
    claimed = await claim_one(engine, "new")
    assert (claimed.type, claimed.attempt) == ("add", 1)
    assert await engine.worker_api.settle([success(claimed, 3)]) == []
    assert (await engine.jobs.get(job.id)).type == "add"


async def test_a_job_for_newer_code_waits_as_long_as_there_are_only_older_workers_and_says_so(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "new", OPTIONAL)
    await engine.worker_api.leave("new")
    await join(engine, "old", OLD, age=HOUR)
    job = await submit(engine, params={"a": 1, "c": 2})
    assert await refuse(engine, await claim_one(engine, "old")) == [Loss.GIVEN_BACK]
    await join(engine, "old-2", OLD, age=HOUR)
    for _ in range(3):
        await later(engine, clock)
        assert await claim(engine, "old") == await claim(engine, "old-2") == []
        assert await reason(engine, job) == NO_FIT
    await join(engine, "new", OPTIONAL)
    assert (await claim_one(engine, "new")).job == job.id


async def test_a_job_that_fits_none_of_several_versions_that_are_up_is_handed_out_ever_more_seldom(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "new", OPTIONAL)
    await engine.worker_api.leave("new")
    await join(engine, "old", OLD, age=HOUR)
    await join(engine, "older", add("a"), age=2 * HOUR)
    job = await submit(engine, params={"a": 1, "c": 2})
    waits = []
    for name in ("old", "older", "old", "older"):
        assert await refuse(engine, await claim_one(engine, name)) == [Loss.GIVEN_BACK]
        waits.append((await engine.jobs.get(job.id)).due_at - clock.now())
        await later(engine, clock, max(SECOND, waits[-1]))
    assert waits[1:] == [2 * FIRST_WAIT, 4 * FIRST_WAIT, 8 * FIRST_WAIT]


async def test_a_worker_that_leaves_a_type_to_others_still_takes_what_they_gave_back(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "old", OLD)
    jobs = [await submit(engine, params={"a": number}) for number in range(2)]
    clock.advance(SECOND)
    await join(engine, "new", REQUIRED)
    (first,) = await claim(engine, "new", limit=1)
    assert await refuse(engine, first) == []
    await later(engine, clock)
    declining = WorkRequest(frozenset({"other"}), only_given_back=frozenset({"add"}))
    claims = await engine.worker_api.claim("old", declining, 9, ZERO)
    assert [(one.job, one.type) for one in claims] == [(first.job, "add")]
    assert first.job in {job.id for job in jobs}


async def test_a_newer_worker_gives_back_what_lacks_a_new_param_while_an_older_one_is_up(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "old", OLD)
    job = await submit(engine, params={"a": 1})
    clock.advance(SECOND)
    await join(engine, "new", REQUIRED)
    assert await refuse(engine, await claim_one(engine, "new")) == []
    assert (await engine.jobs.get(job.id)).state is State.QUEUED
    await later(engine, clock)
    assert await engine.worker_api.settle([success(await claim_one(engine, "old"), 3)]) == []
    assert (await engine.jobs.get(job.id)).state is State.SUCCEEDED


async def test_what_lacks_a_new_param_waits_for_a_day_once_no_worker_takes_it_any_more_and_then_fails(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "old", OLD)
    job = await submit(engine, params={"a": 1})
    clock.advance(SECOND)
    await join(engine, "new", REQUIRED)
    await engine.worker_api.leave("old")
    assert await refuse(engine, await claim_one(engine, "new")) == []
    await later(engine, clock)
    assert await claim(engine, "new") == []
    assert await reason(engine, job) == NO_FIT
    await later(engine, clock, EARLIER_COUNTS_FOR)
    await join(engine, "new", REQUIRED, age=EARLIER_COUNTS_FOR)
    assert await refuse(engine, await claim_one(engine, "new")) == []
    assert (await engine.jobs.get(job.id)).state is State.FAILED


async def test_an_older_worker_that_starts_after_a_newer_one_fails_none_of_its_jobs(
    engine: Engine, clock: SimulatedClock
) -> None:
    """Without `worker.deployed_at` it is taken for the newer; the server has accepted the job nonetheless."""
    await join(engine, "new", OPTIONAL)
    job = await submit(engine, params={"a": 1, "c": 2})
    await engine.worker_api.leave("new")
    clock.advance(SECOND)
    await join(engine, "old", OLD)
    assert await refuse(engine, await claim_one(engine, "old")) == []
    await later(engine, clock)
    assert await claim(engine, "old") == []
    await join(engine, "new", OPTIONAL)
    assert (await claim_one(engine, "new")).job == job.id


async def test_params_that_fit_no_declaration_fail(engine: Engine) -> None:
    await join(engine, "old", OLD)
    job = await submit(engine, params={"a": 1})
    claimed = await claim_one(engine, "old")
    assert await refuse(engine, claimed) == []
    failed = await engine.jobs.get(job.id)
    assert (failed.state, failed.reason) == (State.FAILED, "invalid_params")


async def test_what_another_process_declared_a_moment_ago_counts_before_a_job_fails(
    engine: Engine, clock: SimulatedClock, tmp_path: Path, settings: Settings
) -> None:
    other = Engine(
        engine.store, MemoryBroker(), FolderObjects(tmp_path, clock=clock), settings, clock, random.Random(8)
    )
    await join(engine, "old", OLD)
    await engine.catalog.read()
    await join(other, "new", OPTIONAL)
    await submit(other, params={"a": 1, "c": 2})
    await dispatcher(engine).step()
    assert await refuse(engine, await claim_one(engine, "old")) == [Loss.GIVEN_BACK]


async def test_a_repeated_settle_of_a_job_that_was_given_back_changes_nothing(engine: Engine) -> None:
    await join(engine, "old", OLD)
    await join(engine, "new", OPTIONAL)
    job = await submit(engine, params={"a": 1, "c": 2})
    claimed = await claim_one(engine, "old")
    for _ in range(2):
        assert await refuse(engine, claimed) == [Loss.GIVEN_BACK]
    assert (await engine.jobs.get(job.id)).state is State.QUEUED


async def test_a_worker_that_joins_again_does_not_bring_its_older_declaration_back(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "old", OLD)
    clock.advance(HOUR)
    await join(engine, "new", OPTIONAL)
    await join(engine, "old", OLD, age=HOUR)
    assert (await submit(engine, params={"a": 1, "c": 2})).type == "add"
    await join(engine, "late", OLD, age=2 * HOUR)
    assert (await submit(engine, params={"a": 1, "c": 2})).type == "add"


async def test_a_worker_that_is_started_after_a_rollback_brings_its_declaration_back(
    engine: Engine, clock: SimulatedClock
) -> None:
    for name, declared in (("old", OLD), ("new", REQUIRED), ("again", OLD)):
        await join(engine, name, declared)
        clock.advance(SECOND)
    assert (await submit(engine, params={"a": 1})).type == "add"


async def test_a_worker_leaves_a_type_to_others_for_a_while_when_its_handler_did_not_fit(tmp_path: Path) -> None:
    async with run_worker(tmp_path, FakeWorkerApi(lease=1.5, heartbeat=0.1)) as case:
        case.worker_api.misfits.add(case.worker_api.submit("add", a=1, newer=2))
        wanted = case.worker_api.wanted
        await case.worker_api.until("it is not asked for", lambda: wanted and "add" not in wanted[-1].types)
        assert (wanted[-1].only_given_back, "multiply" in wanted[-1].types) == (frozenset({"add"}), True)
        await case.worker_api.until("it is asked for again", lambda: "add" in wanted[-1].types)
        assert await case.worker_api.result(case.worker_api.submit("add", a=1)) == 2


async def test_a_worker_says_how_old_its_code_is_and_what_its_handlers_take(tmp_path: Path) -> None:
    deployed_at = SystemClock().now() - HOUR
    async with run_worker(tmp_path, deployed_at=deployed_at.isoformat()) as case:
        declared = next(one for one in case.worker_api.types if one.name == "add")
        await case.worker_api.until("it beats", lambda: case.worker_api.workers)
        assert case.worker_api.workers[-1].signatures["add"] == signature_of(declared.params_schema)
        age = timedelta(seconds=case.worker_api.workers[-1].code_age_seconds)
        assert HOUR <= age < HOUR + timedelta(minutes=1)


RENAMED = replace(OPTIONAL, name="add_up", queue="sums-2")


async def join_renamed(engine: Engine, name: str = "renamed") -> None:
    signatures = {"add_up": signature_of(RENAMED.params_schema)}
    await engine.worker_api.join(replace(worker(name, "add_up"), signatures=signatures), [RENAMED])


async def test_jobs_of_a_renamed_type_that_wait_under_its_old_name_are_run_by_its_new_handler(engine: Engine) -> None:
    await join(engine, "old", OLD)
    job = await submit(engine)
    await engine.worker_api.leave("old")
    await join_renamed(engine)
    assert await claim(engine, "renamed", "add_up") == []
    await engine.types.alias("add", "add_up")
    (claimed,) = await claim(engine, "renamed", "add_up")
    assert (claimed.job, claimed.type) == (job.id, "add_up")


async def test_a_worker_that_waits_for_work_hears_of_a_new_name_at_once(engine: Engine) -> None:
    await join(engine, "old", OLD)
    await join_renamed(engine)
    job = await submit(engine)
    waiting = asyncio.create_task(claim(engine, "renamed", "add_up", wait=LONG))
    await asyncio.sleep(0)
    await engine.types.alias("add", "add_up")
    assert [(one.job, one.type) for one in await waiting] == [(job.id, "add_up")]


async def test_a_worker_that_knows_only_the_old_name_goes_on_under_it(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine, "old", OLD)
    job = await submit(engine)
    await join_renamed(engine)
    await engine.types.alias("add", "add_up")
    (claimed,) = await claim(engine, "old", "add")
    assert (claimed.job, claimed.type) == (job.id, "add")


async def test_what_only_the_old_handler_of_a_renamed_type_takes_is_left_to_it(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "old", OLD)
    job = await submit(engine, params={"a": 1})
    await engine.worker_api.join(
        replace(worker("renamed", "add_up"), signatures={"add_up": signature_of(REQUIRED.params_schema)}),
        [replace(REQUIRED, name="add_up")],
    )
    await engine.types.alias("add", "add_up")
    (claimed,) = await claim(engine, "renamed", "add_up")
    assert await refuse(engine, claimed) == []
    await later(engine, clock)
    assert [one.job for one in await claim(engine, "old", "add")] == [job.id]


async def test_a_schedule_of_a_renamed_type_gives_jobs_of_the_new_one(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine, "old", OLD)
    await engine.schedules.create(ScheduleRequest(name="hourly", interval=3600, type="add", params=Raw(b'{"a": 1}')))
    await join_renamed(engine)
    await engine.types.alias("add", "add_up")
    job = await engine.schedules.trigger("hourly")
    assert (job.type, job.queue) == ("add_up", "sums-2")


def hourly(interval: float, age: timedelta) -> ScheduleRequest:
    """A schedule, as code that was deployed so long ago declares it."""
    params = Raw(b'{"a": 1}')
    return ScheduleRequest(
        name="hourly", interval=interval, type="add", params=params, code_age_seconds=age.total_seconds()
    )


async def test_schedules_of_an_older_worker_that_starts_late_replace_none_that_newer_code_declared(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine, "new", OLD)
    await engine.worker_api.declare([hourly(1800, age=SECOND)])
    clock.advance(SECOND)
    await engine.worker_api.declare([hourly(3600, age=HOUR)])
    kept = await engine.schedules.get("hourly")
    assert (kept.when, kept.version) == (Every(timedelta(seconds=1800)), 1)
    # What an operator changes does not make the older code newer; what newer code says counts.
    await engine.schedules.update("hourly", ScheduleChange(interval=900))
    await engine.worker_api.declare([hourly(3600, age=HOUR)])
    assert (await engine.schedules.get("hourly")).when == Every(timedelta(seconds=900))
    await engine.worker_api.declare([hourly(1800, age=timedelta(0))])
    assert (await engine.schedules.get("hourly")).when == Every(timedelta(seconds=1800))
