"""The worker's pure parts: what an end means, when a lease must be given up, how a log and a frame are cut."""

import os
import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.model.clock import SystemClock
from penstock.model.errors import ServerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Claim, ErrorCode, JobError
from penstock.model.names import is_name
from penstock.model.text import readable
from penstock.model.wire.jobs import Outcome
from penstock.worker.agent.agent import new_worker_id
from penstock.worker.agent.attempt import (
    Attempt,
    Cause,
    Died,
    Discard,
    Displaced,
    Ending,
    Failed,
    Halted,
    LeaseTerms,
    Release,
    Returned,
    StopReason,
    conclude,
)
from penstock.worker.agent.executor_process import machine_bytes
from penstock.worker.agent.executors import shares
from penstock.worker.agent.outage import Backoff
from penstock.worker.channel import HEADER, Splitter
from penstock.worker.log_lines import LineSplitter
from penstock.worker.processes import describe
from penstock.worker.protocol import Finished, Start, ToAgent, ToExecutor
from penstock.worker.start_flags import StartFlags, shared_file

JOB = JobId("0190a6e2-0000-7000-8000-000000000000")
CLAIM = Claim(job=JOB, type="add", queue="add", attempt=2, fence=3, timeout_seconds=60.0, lease_seconds=15.0)
ERROR = JobError(ErrorCode.RAISED, "no", attempt=2)
AT = datetime(2026, 1, 1, tzinfo=UTC)

RETURNED = Returned(b"1")
CRASH, CRASHES = Died(Cause.CRASH, "was killed by SIGSEGV", 1), Died(Cause.CRASH, "exited with status 7", 3)
HUNGRY = Died(Cause.MEMORY, "used 9 MiB", 1)


def settled(result: bytes | None = None, *, cancelled: bool = False, error: JobError | None = None) -> Outcome:
    if result is not None:
        return Outcome(job=JOB, fence=3, result=Raw(result))
    return Outcome(job=JOB, fence=3, cancelled=cancelled, error=error)


def charged(code: ErrorCode, message: str) -> Outcome:
    return settled(error=JobError(code, message, attempt=2))


@pytest.mark.parametrize(
    ("ending", "reason", "telling"),
    [
        (RETURNED, None, settled(b"1")),
        (RETURNED, StopReason.CANCELLED, settled(b"1")),
        (RETURNED, StopReason.TIMED_OUT, settled(b"1")),
        (RETURNED, StopReason.LOST, Discard()),
        (Failed(ERROR), None, settled(error=ERROR)),
        (Failed(ERROR), StopReason.LOST, Discard()),
        (Halted(), None, Release()),
        (Halted(), StopReason.CANCELLED, settled(cancelled=True)),
        (Halted(), StopReason.TIMED_OUT, charged(ErrorCode.TIMEOUT, "still running after 60 s")),
        (Halted(), StopReason.YIELDING, Release()),
        (Halted(), StopReason.UNRENEWED, Release()),
        (Halted(), StopReason.LOST, Discard()),
        (CRASH, None, charged(ErrorCode.CRASHED, "the process that ran the handler was killed by SIGSEGV")),
        (CRASH, StopReason.CANCELLED, settled(cancelled=True)),
        (CRASH, StopReason.LOST, Discard()),
        (Displaced(), None, Release(suspect=True)),
        (Displaced(), StopReason.TIMED_OUT, charged(ErrorCode.TIMEOUT, "still running after 60 s")),
        (CRASHES, None, Release(suspect=True)),
        (CRASHES, StopReason.YIELDING, Release()),
        (HUNGRY, None, charged(ErrorCode.OUT_OF_MEMORY, "the process that ran the handler used 9 MiB")),
    ],
)
def test_what_is_told_follows_from_the_end_and_why_it_was_stopped(
    ending: Ending, reason: StopReason | None, telling: object
) -> None:
    assert conclude(CLAIM, ending, reason) == telling


@given(lease=st.floats(1, 3600), heartbeat=st.floats(0.01, 3600), grace=st.floats(0, 600))
def test_an_unrenewed_job_is_stopped_after_a_heartbeat_was_missed_and_before_its_lease_ends(
    lease: float, heartbeat: float, grace: float
) -> None:
    terms = LeaseTerms.of(lease, heartbeat, grace)
    assert terms.heartbeat < terms.stop_at(lease) <= terms.gone(lease) < lease
    assert terms.claim_wait < terms.stop_at(lease)


def test_a_lease_is_late_or_gone_from_the_same_moment_on_either_way_of_asking() -> None:
    terms = LeaseTerms.of(16.0, 4.0, 2.0)
    for now in (0.0, 12.0, 13.0, 14.0, 15.0, 16.0):
        assert (terms.late_by(now) >= 16.0) == (now >= terms.stop_at(16.0))
        assert (terms.gone_by(now) >= 16.0) == (now >= terms.gone(16.0))


def test_only_a_loss_outranks_the_first_reason_to_stop() -> None:
    attempt = Attempt.of(CLAIM, 0.0, 0.0, "/nowhere")
    attempt.stop(StopReason.TIMED_OUT, 10.0, 5.0)
    attempt.stop(StopReason.CANCELLED, 11.0, 5.0)
    assert (attempt.reason, attempt.kill_at) == (StopReason.TIMED_OUT, 15.0)
    attempt.stop(StopReason.LOST, 12.0, 0.0)
    assert (attempt.reason, attempt.kill_at) == (StopReason.LOST, 12.0)


@given(count=st.integers(0, 60), held=st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_jobs_are_dealt_as_if_each_went_to_whoever_had_the_fewest(count: int, held: list[int]) -> None:
    one_by_one = list(held)
    for _ in range(count):
        one_by_one[one_by_one.index(min(one_by_one))] += 1
    dealt = [before + more for before, more in zip(held, shares(count, held), strict=True)]
    assert sorted(dealt) == sorted(one_by_one)


@given(pieces=st.lists(st.text(alphabet="ab\n", max_size=12)))
def test_lines_come_out_as_they_were_written(pieces: list[str]) -> None:
    lines = LineSplitter(1, 1_000_000)
    taken = []
    for piece in pieces:
        lines.write(AT, "stdout", piece)
        taken += [line.text for line in lines.take()]
    taken += [line.text for line in lines.finish(AT)]
    whole = "".join(pieces)
    assert taken == (whole.split("\n")[:-1] if whole.endswith("\n") or not whole else whole.split("\n"))


def test_a_log_is_cut_once() -> None:
    lines = LineSplitter(1, 10)
    for _ in range(5):
        lines.write(AT, "stdout", "12345\n")
    assert [line.text for line in lines.finish(AT)] == ["12345", "… log cut at 10 bytes"]


def test_a_line_without_an_end_is_seen_before_it_ends() -> None:
    lines = LineSplitter(1, 1_000_000)
    assert lines.write(AT, "stdout", "x" * 20_000)


@given(bodies=st.lists(st.binary(max_size=40)), cut=st.integers(1, 7))
def test_frames_survive_any_cut_of_the_stream(bodies: list[bytes], cut: int) -> None:
    stream = b"".join(len(body).to_bytes(HEADER, "big") + body for body in bodies)
    splitter = Splitter()
    pieces = [stream[start : start + cut] for start in range(0, len(stream), cut)]
    assert [body for piece in pieces for body in splitter.feed(piece)] == bodies


def test_frames_come_back_as_what_they_were() -> None:
    said: list[ToExecutor | ToAgent] = [Start(1, JOB, "add", 1, 2, b"{}", "/x", ("t",), {"a": "/a"})]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=list[ToExecutor]) == said
    told = [Finished(1, b"1", {"a": "text/plain"})]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=list[ToAgent]) == told


def test_a_job_taken_back_does_not_begin_and_one_that_began_is_seen() -> None:
    file = shared_file(4)
    agent, executor = StartFlags(file, 4), StartFlags(file, 4)
    agent.take_back(1)
    assert not executor.begin(1)
    assert executor.begin(2)
    assert [agent.started(place) for place in range(4)] == [False, True, True, False]
    agent.clear(1)
    assert executor.begin(1)
    os.close(file)


def test_a_worker_id_is_a_safe_name() -> None:
    for host in ("vm-1", "ü.local", "", "-x-", "a" * 300):
        assert is_name(new_worker_id(random.Random(1), host))


def test_memory_is_that_of_the_container(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cgroup")
    (folder / "memory.max").write_text("1048576\n")
    (folder / "unlimited").write_text("max\n")
    assert machine_bytes((folder / "memory.max", folder / "unlimited", folder / "missing")) == 1048576


def test_ends_of_processes_are_told_in_words() -> None:
    assert [describe(status) for status in (0, 7, -11)] == [
        "exited with status 0",
        "exited with status 7",
        "was killed by SIGSEGV",
    ]


class NotingClock(SystemClock):
    """Sleeps not at all, and notes for how long it would have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, span: timedelta) -> None:
        self.slept.append(span.total_seconds())


@pytest.mark.parametrize(("asked", "waited"), [(None, 0.1), (3, 3.0), (3600, 5.0)])
async def test_a_worker_waits_as_long_as_it_is_asked_to_within_bounds(asked: int | None, waited: float) -> None:
    clock = NotingClock()
    error = ServerUnavailable("too many requests")
    if asked is not None:
        error.details["retry_after"] = asked
    await Backoff(None, clock, random.Random(1)).wait(error)
    assert clock.slept[0] <= waited
    assert asked is None or clock.slept == [waited]


class Awkward:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain ☃", "plain ☃"),
        ("half \ud83d", "half \\ud83d"),
        (ValueError("\udcff"), "\\udcff"),
        (Awkward(), "<a Awkward whose text cannot be had: RuntimeError>"),
    ],
)
def test_any_value_has_a_text_that_can_be_passed_on(value: object, text: str) -> None:
    assert readable(value) == text
