"""The engine's moves on real backends."""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from penstock.engine import Engine
from penstock.engine.files import output_key
from penstock.model.errors import Conflict, Invalid, InvalidParams, KeyConflict, LeaseLost, NotFound, UnknownType
from penstock.model.job import ErrorCode, FileLink, JobError, JobFilter, LogLine, Loss
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import LogEntry
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import (
    LONG,
    body,
    claim,
    claim_one,
    dispatcher,
    failure,
    join,
    lease,
    reaper,
    request,
    submit,
    success,
    worker,
)

RAISED = JobError(ErrorCode.RAISED, "no luck", error_class="app.NoLuck")
CRASHED = JobError(ErrorCode.CRASHED, "signal 11")


async def test_a_job_goes_in_and_comes_out_done(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine, params={"a": 2})
    claimed = await claim_one(engine)
    assert (claimed.job, claimed.attempt, claimed.fence, bytes(claimed.params)) == (job.id, 1, 1, b'{"a":2}')
    assert await engine.worker_api.settle([success(claimed, 3)]) == []
    done = await engine.jobs.get(job.id)
    assert (done.state, done.result) == (State.SUCCEEDED, b"3")


async def test_what_is_left_out_comes_from_the_job_type(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    assert (job.queue, job.retry.max_attempts, job.timeout) == ("sums", 3, timedelta(seconds=60))
    job = await submit(engine, queue="fast", priority=9, retry_policy="none", timeout_seconds=None)
    assert (job.queue, job.priority, job.retry.max_attempts, job.timeout) == ("fast", 9, 1, None)


async def test_an_unknown_type_is_refused_naming_the_known_ones(engine: Engine) -> None:
    await join(engine)
    with pytest.raises(UnknownType, match="known: add, other"):
        await submit(engine, "ad")


@pytest.mark.parametrize("params", [{}, {"a": "x"}, {"a": 1, "c": 2}, [1]])
async def test_a_wrong_call_is_refused_and_nothing_is_stored(engine: Engine, params: object) -> None:
    await join(engine)
    with pytest.raises(InvalidParams):
        await submit(engine, params=params)
    assert (await engine.store.page(JobFilter(), None, 10)).jobs == []


async def test_times_that_exclude_each_other_are_refused(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    later = clock.now() + timedelta(hours=1)
    with pytest.raises(Invalid, match="not both"):
        await submit(engine, delay_seconds=5, scheduled_at=later)
    with pytest.raises(Invalid, match="could never run"):
        await submit(engine, scheduled_at=later, expires_at=later)


async def test_a_repeated_key_gives_the_same_job_and_another_body_is_refused(engine: Engine) -> None:
    await join(engine)
    first = await submit(engine, idempotency_key="k")
    assert (await submit(engine, idempotency_key="k")).id == first.id
    with pytest.raises(KeyConflict, match=first.id):
        await submit(engine, params={"a": 5}, idempotency_key="k")


async def test_the_same_files_uploaded_again_ask_for_the_same(engine: Engine) -> None:
    await join(engine)
    first, again, other = [await engine.files.upload(body(content), "text/plain") for content in (b"1", b"1", b"2")]
    job = await submit(engine, inputs={"x": first.id}, idempotency_key="k")
    assert (await submit(engine, inputs={"x": again.id}, idempotency_key="k")).id == job.id
    with pytest.raises(KeyConflict):
        await submit(engine, inputs={"x": other.id}, idempotency_key="k")


async def test_each_job_of_a_batch_is_accepted_or_refused_by_itself(engine: Engine) -> None:
    await join(engine)
    answers = await engine.jobs.submit([request(), request("nope"), request(params={"a": 9})])
    assert [type(answer).__name__ for answer in answers] == ["Inserted", "UnknownType", "Inserted"]
    assert len(await claim(engine)) == 2


async def test_a_waiting_claim_is_answered_the_moment_there_is_work(engine: Engine) -> None:
    await join(engine)
    waiting = asyncio.create_task(claim(engine, wait=LONG))
    await asyncio.sleep(0)
    job = await submit(engine)
    assert [claimed.job for claimed in await waiting] == [job.id]


async def test_a_worker_never_gets_what_it_cannot_run(engine: Engine) -> None:
    await join(engine)
    await submit(engine, queue="shared")
    other = await submit(engine, "other", {}, queue="shared")
    assert [claimed.job for claimed in await claim(engine, "w2", "other")] == [other.id]
    assert await claim(engine, "w2", "other") == []


async def test_a_claim_whose_asker_went_away_gives_its_jobs_back(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    asking = asyncio.create_task(claim(engine))
    while await engine.broker.depths():  # noqa: ASYNC110 - a broker has no event for "a ticket was taken"
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await engine.jobs.get(job.id)).state is State.QUEUED
    await dispatcher(engine).step()
    assert (await claim_one(engine)).attempt == 1


async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(engine: Engine) -> None:
    await join(engine)
    before = await submit(engine)
    await engine.queues.pause("sums", paused=True)
    during = await submit(engine)
    assert await claim(engine) == []
    assert (await engine.jobs.item(before)).reason == "queue paused"
    waiting = asyncio.create_task(claim(engine, wait=LONG))
    await asyncio.sleep(0)
    await engine.queues.pause("sums", paused=False)
    assert [claimed.job for claimed in await waiting] == [before.id]
    await dispatcher(engine).step()
    assert [claimed.job for claimed in await claim(engine)] == [during.id]


async def test_an_errored_attempt_is_tried_again_until_its_attempts_are_used_up(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    job = await submit(engine)
    for attempt in (1, 2, 3):
        claimed = await claim_one(engine)
        assert claimed.attempt == attempt
        await engine.worker_api.settle([failure(claimed, RAISED)])
        clock.advance(timedelta(seconds=10))
        await dispatcher(engine).step()
    ended = await engine.jobs.get(job.id)
    assert (ended.state, ended.reason, ended.attempt) == (State.FAILED, "raised", 3)
    assert ended.error is not None
    assert ended.error.attempt == 3


async def test_an_error_that_the_policy_forbids_is_not_tried_again(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine, retry_policy={"kind": "fixed", "max_attempts": 5, "never": ["NoLuck"]})
    await engine.worker_api.settle([failure(await claim_one(engine), RAISED)])
    assert (await engine.jobs.get(job.id)).state is State.FAILED


async def test_an_error_whose_base_the_policy_forbids_is_not_tried_again(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine, retry_policy={"kind": "fixed", "max_attempts": 5, "never": ["app.Misfortune"]})
    told = msgspec.structs.replace(RAISED, error_bases=("app.Misfortune", "builtins.Exception"))
    await engine.worker_api.settle([failure(await claim_one(engine), told)])
    ended = await engine.jobs.get(job.id)
    assert ended.state is State.FAILED
    assert ended.error == msgspec.structs.replace(RAISED, attempt=1), "the bases are for this decision alone"


async def test_a_job_that_killed_three_processes_is_poison(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine, retry_policy={"kind": "fixed", "max_attempts": 9, "delay_seconds": 0})
    for _ in range(3):
        await dispatcher(engine).step()
        await engine.worker_api.settle([failure(await claim_one(engine), CRASHED)])
    ended = await engine.jobs.get(job.id)
    assert (ended.state, ended.reason, ended.attempt) == (State.FAILED, "poison", 3)


async def test_a_zombie_is_refused_and_its_output_unseen(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    job = await submit(engine)
    zombie = await claim_one(engine)
    digest = hashlib.sha256(b"old").hexdigest()
    link = await engine.worker_api.write_output(lease(zombie), 0, body(b"old"), "text/plain", digest)
    clock.advance(timedelta(seconds=16))
    await reaper(engine).step()
    await dispatcher(engine).step()
    heir = await claim_one(engine, "w2")
    assert heir.fence > zombie.fence
    (refusal,) = await engine.worker_api.settle([success(zombie, "old", outputs=(FileLink("out", link),))])
    assert refusal.loss is Loss.LOST
    with pytest.raises(NotFound):
        await engine.files.open_output(job.id, "out")
    with pytest.raises(LeaseLost):
        await engine.worker_api.write_output(lease(zombie), 1, body(b"x"), "text/plain", digest)
    assert await engine.worker_api.settle([success(heir, "new")]) == []
    assert (await engine.jobs.get(job.id)).result == b'"new"'


async def test_an_output_of_another_fence_cannot_be_linked(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    claimed = await claim_one(engine)
    digest = hashlib.sha256(b"1").hexdigest()
    link = await engine.worker_api.write_output(lease(claimed), 0, body(b"1"), "text/plain", digest)
    stolen = msgspec.structs.replace(link, key=output_key(job.id, claimed.fence + 1, 0))
    await engine.worker_api.settle([success(claimed, outputs=(FileLink("out", stolen),))])
    ended = await engine.jobs.get(job.id)
    assert (ended.state, ended.reason, ended.outputs) == (State.FAILED, "invalid_output", ())


async def test_an_output_is_seen_once_its_settle_is_accepted(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    claimed = await claim_one(engine)
    digest = hashlib.sha256(b"hello").hexdigest()
    link = await engine.worker_api.write_output(lease(claimed), 0, body(b"hel", b"lo"), "text/plain", digest)
    with pytest.raises(NotFound):
        await engine.files.open_output(job.id, "out.txt")
    await engine.worker_api.settle([success(claimed, outputs=(FileLink("out.txt", link),))])
    file, content = await engine.files.open_output(job.id, "out.txt")
    assert (file.object.size, b"".join([chunk async for chunk in content])) == (5, b"hello")


async def test_inputs_are_uploaded_linked_and_inherited_by_a_retry(engine: Engine) -> None:
    await join(engine)
    upload = await engine.files.upload(body(b"a,b"), "text/csv")
    job = await submit(engine, inputs={"data.csv": upload.id})
    claimed = await claim_one(engine)
    assert b"".join([chunk async for chunk in engine.worker_api.read_input(job.id, claimed.inputs[0])]) == b"a,b"
    await engine.worker_api.settle([success(claimed)])
    again = await engine.jobs.retry(job.id)
    assert (again.retry_of, again.inputs[0].name) == (job.id, "data.csv")
    assert again.inputs[0].object.key != job.inputs[0].object.key


@pytest.mark.parametrize(
    "inputs",
    [{"x": "0190a6e2-0000-7000-8000-000000000000"}, {"x": "../../etc/passwd"}, {"..": None}, {"ä" * 128: None}],
)
async def test_an_input_that_cannot_be_linked_refuses_the_job(engine: Engine, inputs: dict[str, str | None]) -> None:
    await join(engine)
    upload = await engine.files.upload(body(b"1"), "text/plain")
    with pytest.raises(Invalid):
        await submit(engine, inputs={name: given or upload.id for name, given in inputs.items()})


async def test_large_params_and_results_lie_in_the_object_store(engine: Engine) -> None:
    await join(engine)
    large = {"a": 1, "b": 2}
    padded = b'{"a":1,"b":2' + b" " * 70_000 + b"}"
    asked = msgspec.structs.replace(request(), params=msgspec.Raw(padded))
    (made,) = await engine.jobs.submit([asked])
    job = made.job  # type: ignore[union-attr]
    assert job.params is None
    claimed = await claim_one(engine)
    assert msgspec.json.decode(claimed.params) == large
    await engine.worker_api.settle([success(claimed, "r" * 70_000)])
    ended = await engine.jobs.get(job.id)
    assert ended.result is None
    item = await engine.jobs.item(ended)
    assert (msgspec.json.decode(item.params), len(item.result)) == (large, 70_002)
    (listed,) = (await engine.jobs.list(JobFilter(), None, 10)).jobs
    assert listed.omitted == ("params", "result")


async def test_an_outcome_whose_object_store_is_down_is_told_again_and_not_forgotten(
    engine: Engine, tmp_path: Path
) -> None:
    await join(engine)
    large, small = await submit(engine), await submit(engine)
    claims = {one.job: one for one in await claim(engine)}
    outcomes = [success(claims[large.id], "r" * 70_000), success(claims[small.id], 1)]
    with down(tmp_path / "objects"):
        assert [(one.job, one.loss) for one in await engine.worker_api.settle(outcomes)] == [(large.id, Loss.UNSURE)]
        assert (await engine.jobs.get(large.id)).state is State.RUNNING
        assert (await engine.jobs.get(small.id)).state is State.SUCCEEDED
    assert await engine.worker_api.settle(outcomes[:1]) == []
    assert (await engine.jobs.get(large.id)).state is State.SUCCEEDED


@contextmanager
def down(objects: Path) -> Iterator[None]:
    """As long as this lasts, there is no folder where the objects were."""
    elsewhere = objects.rename(objects.with_name("elsewhere"))
    try:
        yield
    finally:
        elsewhere.rename(objects)


async def test_whoever_waits_is_answered_when_the_job_ends(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    waiting = asyncio.create_task(engine.jobs.wait(job.id, LONG))
    await asyncio.sleep(0)
    await engine.worker_api.settle([success(await claim_one(engine), 1)])
    assert (await waiting).state is State.SUCCEEDED


async def test_after_cancelled_was_answered_no_attempt_starts(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    assert (await engine.jobs.cancel(job.id)).state is State.CANCELLED
    assert await claim(engine) == []


async def test_a_running_job_is_asked_to_cancel_and_its_retry_is_not_scheduled(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    claimed = await claim_one(engine)
    assert (await engine.jobs.cancel(job.id)).state is State.RUNNING
    (renewal,) = (await engine.worker_api.renew(worker(), [lease(claimed)])).renewals
    assert renewal.cancel
    await engine.worker_api.settle([failure(claimed, RAISED)])
    assert (await engine.jobs.get(job.id)).state is State.CANCELLED


async def test_force_ends_a_running_job_and_fences_its_worker_off(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    claimed = await claim_one(engine)
    assert (await engine.jobs.cancel(job.id, force=True)).state is State.CANCELLED
    (refusal,) = await engine.worker_api.settle([success(claimed)])
    assert refusal.loss is Loss.LOST


async def test_only_an_ended_job_is_retried_by_hand(engine: Engine) -> None:
    await join(engine)
    job = await submit(engine)
    with pytest.raises(Conflict, match="only an ended job"):
        await engine.jobs.retry(job.id)


async def test_a_waiting_job_says_why(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    engine.catalog.forget()
    later = await submit(engine, delay_seconds=60)
    queued = await submit(engine)
    assert (await engine.jobs.item(later)).reason == "due later"
    engine.catalog.forget()
    await engine.worker_api.renew(worker(), [])
    assert (await engine.jobs.item(queued)).reason == "waiting for a free worker"
    seen_at = clock.now()
    clock.advance(timedelta(minutes=1))
    assert (await engine.jobs.item(queued)).reason == "no worker runs this type"
    clock.advance(timedelta(minutes=1))
    since = f"no worker has run this type since {seen_at:%Y-%m-%dT%H:%M:%SZ}"
    assert (await engine.jobs.item(queued)).reason == since
    await engine.worker_api.leave("w1")
    assert (await engine.jobs.item(queued)).reason == since
    await engine.types.retire("add")
    assert (await engine.jobs.item(queued)).reason == f"this type was retired at {clock.now():%Y-%m-%dT%H:%M:%SZ}"


async def test_queues_tell_their_depth_and_the_age_of_the_oldest(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    await submit(engine)
    await submit(engine, delay_seconds=60)
    clock.advance(timedelta(seconds=5))
    queue = await engine.queues.get("sums")
    assert (queue.jobs, queue.oldest_seconds, queue.paused) == ({State.QUEUED: 1, State.SCHEDULED: 1}, 5.0, False)
    with pytest.raises(NotFound):
        await engine.queues.get("nothing")


async def test_logs_of_a_running_attempt_are_kept_and_those_of_a_lost_one_dropped(
    engine: Engine, clock: SimulatedClock
) -> None:
    await join(engine)
    job = await submit(engine)
    claimed = await claim_one(engine)
    line = LogLine(clock.now(), "stdout", "hello", 1)
    await engine.worker_api.log(
        [LogEntry(job.id, claimed.fence, (line,)), LogEntry(job.id, claimed.fence + 1, (line,))]
    )
    page = await engine.jobs.log(job.id, 0, 10)
    assert [kept.text for kept in page.lines] == ["hello"]
    assert (await engine.jobs.log(job.id, page.position, 10)).lines == ()
