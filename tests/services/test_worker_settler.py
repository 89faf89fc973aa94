"""What one outcome that cannot be recorded does to the others: nothing. And what becomes of itself."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.client.calls import Reply
from penstock.http1 import error_of
from penstock.model.errors import Forbidden, Invalid, Malformed, PenstockError, StoreUnavailable, TooLarge
from penstock.model.ids import shard_of
from penstock.model.job import ErrorCode, Lease
from penstock.model.wire.jobs import Outcome, SettleRequest
from penstock.worker.agent import settler
from tests.services.fake_worker_api import FakeWorkerApi
from tests.services.running_worker import run_worker

SOON = 5.0
PROBLEM_JSON = {"content-type": "application/problem+json"}
FAULT = Reply(500, b'{"type":"t","title":"t","status":500,"code":"error","detail":"a fault"}', PROBLEM_JSON)
NOT_FOUND = Reply(404, b"<html>nginx", {"content-type": "text/html"})
TOO_MANY = Reply(429, b"", {"retry-after": "1"})


def refusing(jobs: set[str], error: Callable[[], Exception], *, plain_too: bool = False) -> Callable[..., None]:
    """Raise this for a call that carries the outcome of one of the jobs, however small the call is."""

    def look(outcomes: Sequence[Outcome]) -> None:
        if any(one.job in jobs and (plain_too or one.error is None) for one in outcomes):
            raise error()

    return look


def encoding(outcomes: Sequence[Outcome]) -> None:
    msgspec.json.encode(SettleRequest(tuple(outcomes)))


def answered(reply: Reply) -> Callable[[], Exception]:
    return lambda: error_of(reply, "http://server.test")


OWN_FAULTS: list[Callable[[], Exception]] = [
    lambda: Malformed("not JSON"),
    lambda: Invalid("a value is not acceptable"),
    lambda: TooLarge("above a limit"),
    lambda: UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
]


@pytest.mark.parametrize("fault", OWN_FAULTS)
async def test_an_outcome_that_cannot_be_told_fails_and_its_neighbours_are_settled(
    tmp_path: Path, fault: Callable[[], Exception]
) -> None:
    async with run_worker(tmp_path) as at:
        bad = at.worker_api.submit("wait_async", name="bad")
        await at.appears("waiting-bad")
        neighbours = [at.worker_api.submit("wait_async", name=f"n{number}") for number in range(5)]
        await at.appears("waiting-n4")
        at.worker_api.mishaps["settle"] = refusing({bad}, fault)
        at.go()
        for number, job in enumerate(neighbours):
            assert (await at.worker_api.outcome(job, SOON)).result == msgspec.Raw(b'"n%d"' % number)
        error = (await at.worker_api.outcome(bad, SOON)).error
        assert error is not None
        assert error.code is ErrorCode.INVALID_RESULT
        assert "the result cannot be recorded" in error.message


async def test_an_error_that_cannot_be_told_is_told_plainly_and_may_be_tried_again(tmp_path: Path) -> None:
    def no_tracebacks(outcomes: Sequence[Outcome]) -> None:
        if any(one.error is not None and one.error.traceback for one in outcomes):
            raise Invalid("error.traceback: cannot be kept")

    async with run_worker(tmp_path) as at:
        at.worker_api.mishaps["settle"] = no_tracebacks
        error = (await at.worker_api.outcome(at.worker_api.submit("fail", text="no luck"), SOON)).error
        assert error is not None
        assert (error.code, error.retryable, error.traceback) == (ErrorCode.RAISED, True, None)
        assert "error.traceback: cannot be kept" in error.message


@pytest.mark.parametrize("reply", [FAULT, NOT_FOUND])
async def test_an_outcome_that_the_server_fails_with_holds_up_no_other_and_fails_after_a_lease(
    tmp_path: Path, reply: Reply
) -> None:
    async with run_worker(tmp_path, FakeWorkerApi(lease=2.0)) as at:
        bad = at.worker_api.submit("add", a=1)
        at.worker_api.mishaps["settle"] = refusing({bad}, answered(reply))
        for number in range(5):
            job = at.worker_api.submit("add", a=number)
            assert (await at.worker_api.outcome(job, SOON)).error is None
        error = (await at.worker_api.outcome(bad)).error
        assert error is not None
        assert error.code is ErrorCode.INVALID_RESULT
        assert f"answered {reply.status}" in error.message


@pytest.mark.parametrize("reply", [FAULT, NOT_FOUND, TOO_MANY])
async def test_a_success_that_something_on_the_way_refuses_once_is_a_success(tmp_path: Path, reply: Reply) -> None:
    async with run_worker(tmp_path) as at:
        left = [answered(reply)] * 3

        def refuse_thrice(outcomes: Sequence[Outcome]) -> None:
            if outcomes and left:
                raise left.pop()()

        at.worker_api.mishaps["settle"] = refuse_thrice
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
        assert left == []


@pytest.mark.parametrize("fault", [*OWN_FAULTS, answered(FAULT), lambda: Forbidden("not of your queues")])
async def test_a_lease_is_renewed_no_more_when_not_even_a_plain_error_is_taken(
    tmp_path: Path, fault: Callable[[], Exception]
) -> None:
    async with run_worker(tmp_path, FakeWorkerApi(lease=1.5)) as at:
        bad = at.worker_api.submit("wait_async", name="bad")
        await at.appears("waiting-bad")
        at.worker_api.mishaps["settle"] = refusing({bad}, fault, plain_too=True)
        await at.worker_api.until(
            "it is renewed while it runs", lambda: any(bad in one for one in at.worker_api.renewed)
        )
        at.go()
        await at.worker_api.until("it is given up", lambda: at.worker_api.renewed[-1] == set())
        before = len(at.worker_api.renewed)
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2
        await at.worker_api.until("two more heartbeats", lambda: len(at.worker_api.renewed) > before + 2)
        assert not any(bad in leases for leases in at.worker_api.renewed[before:])
        assert bad not in at.worker_api.outcomes


async def test_a_release_that_is_refused_holds_up_no_outcome(tmp_path: Path) -> None:
    async with run_worker(tmp_path, FakeWorkerApi(lease=3.0), executors=1) as at:
        suspect = at.worker_api.submit("exit_when_told")
        neighbour = at.worker_api.submit("wait_async", name="n")
        await at.appears("armed")
        await at.appears("waiting-n")

        def refuse(leases: Sequence[Lease]) -> None:
            if any(one.job == suspect for one in leases):
                raise Forbidden("not of your queues")

        at.worker_api.mishaps["release"] = refuse
        at.go("exit")
        await at.worker_api.until("the neighbour is released", lambda: neighbour in at.worker_api.released, SOON)
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2


async def test_a_lease_that_cannot_be_renewed_costs_no_other_its_own(tmp_path: Path) -> None:
    async with run_worker(tmp_path, FakeWorkerApi(lease=2.0)) as at:
        bad = at.worker_api.submit("sleep", name="-bad")
        fine = at.worker_api.submit("wait_async", name="n")
        await at.appears("sleeping-bad")
        await at.appears("waiting-n")

        def refuse(leases: Sequence[Lease]) -> None:
            if any(one.job == bad for one in leases):
                raise Invalid("progress: not acceptable")

        at.worker_api.mishaps["renew"] = refuse
        await at.appears("cleaned-bad")
        at.go()
        assert await at.worker_api.result(fine) == "n"


async def test_an_output_whose_name_is_no_text_fails_its_job_alone(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        at.worker_api.mishaps["settle"] = encoding
        bad, fine = at.worker_api.submit("unnameable_output"), at.worker_api.submit("add", a=1)
        error = (await at.worker_api.outcome(bad, SOON)).error
        assert error is not None
        assert error.code is ErrorCode.INVALID_OUTPUT
        assert "its name is not UTF-8" in error.message
        assert await at.worker_api.result(fine) == 2


async def test_outcomes_wait_for_an_outage_to_end_however_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("add", a=1)
        at.worker_api.mishaps["settle"] = raising(StoreUnavailable("disk full"))
        await at.worker_api.until(
            "it is renewed", lambda: len([one for one in at.worker_api.renewed if job in one]) > 10
        )
        del at.worker_api.mishaps["settle"]
        assert await at.worker_api.result(job) == 2
    told = [one.message for one in caplog.records if "cannot be recorded now" in one.message]
    assert told == ["1 outcomes cannot be recorded now (disk full); they are told again"]


def raising(error: PenstockError) -> Callable[[Sequence[Any]], None]:
    def look(carried: Sequence[Any]) -> None:
        raise error

    return look


# -- what jobs write


def of_shard_1(carried: Sequence[Any]) -> bool:
    return any(shard_of(one.job) == 1 for one in carried)


async def test_log_lines_for_a_shard_that_is_away_hold_up_nothing_of_another(tmp_path: Path) -> None:
    async with run_worker(tmp_path, SlowShard(lease=3.0)) as at:
        away = at.worker_api.submit("speak_and_wait", word="away", shard=1)
        await at.appears("spoke-away")
        await at.worker_api.until("its log is stuck", lambda: at.worker_api.stuck.is_set())  # type: ignore[attr-defined]
        at.go()
        fine = at.worker_api.submit("speak_and_wait", word="fine", shard=0)
        assert (await at.worker_api.outcome(fine, SOON)).error is None
        assert [text for _, text in at.worker_api.text(fine)] == ["fine", "fine again"]
        assert away not in at.worker_api.outcomes


async def test_log_lines_that_were_kept_without_an_answer_are_not_kept_twice(tmp_path: Path) -> None:
    async with run_worker(tmp_path, Deaf(lease=3.0)) as at:
        job = at.worker_api.submit("speak_and_wait", word="twice")
        await at.appears("spoke-twice")
        await at.worker_api.until("its log was sent again", lambda: at.worker_api.calls > 1)  # type: ignore[attr-defined]
        at.go()
        assert (await at.worker_api.outcome(job, SOON)).error is None
        assert [text for _, text in at.worker_api.text(job)] == ["twice", "twice again"]


async def test_an_outcome_waits_for_the_log_lines_of_its_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler, "LOG_SECONDS", 3600.0)
    api = HeldLogs()
    async with run_worker(tmp_path, api) as at:
        at.go()
        spoke = api.submit("speak_and_wait", word="held")
        await api.until("its last lines are sent", lambda: api.held)
        for number in range(10):
            assert (await api.outcome(api.submit("add", a=number), SOON)).error is None
        assert spoke not in api.outcomes
        api.go_on.set()
        assert (await api.outcome(spoke, SOON)).error is None
        assert [text for _, text in api.text(spoke)] == ["held", "held again"]


class HeldLogs(FakeWorkerApi):
    """Takes the last line of a job only once `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.go_on = asyncio.Event()

    async def log(self, entries: Sequence[Any]) -> list[Any]:
        if any(line.text.endswith("again") for entry in entries for line in entry.lines):
            self.held = True
            self._tell()
            await self.go_on.wait()
        return await super().log(entries)


async def test_a_call_carries_no_more_bytes_than_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "CALL_BYTES", 9)
    calls: list[int] = []

    def refuse_at_first(outcomes: Sequence[Outcome]) -> None:
        calls.append(len(outcomes))
        if outcomes and len(calls) < 5:
            raise StoreUnavailable("not yet")

    async with run_worker(tmp_path) as at:
        jobs = [at.worker_api.submit("wait_async", name=f"n{number}") for number in range(6)]
        for number in range(6):
            await at.appears(f"waiting-n{number}")
        at.worker_api.mishaps["settle"] = refuse_at_first
        at.go()
        for job in jobs:
            assert (await at.worker_api.outcome(job, SOON)).error is None
        assert max(calls) == 2


class Deaf(FakeWorkerApi):
    """Keeps the first log lines, and does not answer."""

    calls = 0

    async def log(self, entries: Sequence[Any]) -> list[Any]:
        answer = await super().log(entries)
        self.calls += 1
        self._tell()
        if self.calls == 1:
            raise StoreUnavailable("no answer in time")
        return answer


class SlowShard(FakeWorkerApi):
    """Shard 1 takes neither log lines nor outcomes; it is never heard of again."""

    def __init__(self, lease: float) -> None:
        super().__init__(lease)
        self.stuck = asyncio.Event()

    async def log(self, entries: Sequence[Any]) -> list[Any]:
        if of_shard_1(entries):
            self.stuck.set()
            self._tell()
            await asyncio.Event().wait()
        return await super().log(entries)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Any]:
        self.unsure |= {one.job for one in outcomes if shard_of(one.job) == 1}
        return await super().settle(outcomes)
