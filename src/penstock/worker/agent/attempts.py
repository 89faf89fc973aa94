"""In the agent: the attempts that run here, from claim to settle. Enforces the job timeout, cancels and lost leases."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.model.clock import Clock, seconds, within
from penstock.model.job import Claim, ErrorCode, FileLink, LogLine, Progress
from penstock.model.ports import WorkerApi
from penstock.model.text import readable
from penstock.model.workers import DEFAULT_TIMEOUT_SECONDS, HandlerKind
from penstock.worker.agent.attempt import (
    NEVER,
    Attempt,
    End,
    Failed,
    Halted,
    LeaseTerms,
    Release,
    Returned,
    StopReason,
    Wakeup,
    attempt_error,
    conclude,
)
from penstock.worker.agent.command import CommandRun
from penstock.worker.agent.executors import Executors
from penstock.worker.agent.files import FileTrouble, fetch_inputs, remove, store_outputs
from penstock.worker.agent.logs import Logs
from penstock.worker.agent.outage import Backoff
from penstock.worker.agent.settler import Settler
from penstock.worker.protocol import Program

logger = logging.getLogger("penstock.worker")
OLD_SHARE = 0.1
"""A lease is renewed at once if more than this share of it passed before the claim was answered."""
SOLE_PATIENCE = seconds(DEFAULT_TIMEOUT_SECONDS)
"""How long a job that must run alone in its worker waits for the others to end. Nothing is claimed meanwhile."""


class Rules(Struct, frozen=True):
    """The limits of this worker, in seconds and bytes. `shared` are the types whose jobs share an executor."""

    capacity: int
    grace: float
    log_bytes: int
    result_bytes: int
    scratch: str
    kinds: Mapping[str, HandlerKind]
    shared: frozenset[str]
    programs: Mapping[str, Program]


class Urgency(Protocol):
    def soon(self, attempt: Attempt) -> None: ...


class Attempts:
    """The attempts that have not ended. One needs an asyncio task only if it has files or is a command."""

    def __init__(
        self,
        rules: Rules,
        terms: LeaseTerms,
        api: WorkerApi,
        clock: Clock,
        executors: Executors,
        settler: Settler,
        logs: Logs,
        new_backoff: Callable[[], Backoff],
    ) -> None:
        self._rules = rules
        self._terms = terms
        self._api = api
        self._clock = clock
        self._executors = executors
        self._settler = settler
        self._logs = logs
        self._new_backoff = new_backoff
        self._active: set[Attempt] = set()
        self._sole: Attempt | None = None
        self._tasks: asyncio.TaskGroup
        self._urgency: Urgency
        self._wakeup = Wakeup()
        self._closed = False

    def open(self, tasks: asyncio.TaskGroup, urgency: Urgency) -> None:
        self._tasks, self._urgency = tasks, urgency

    def close(self) -> None:
        """Accept no more claims. Later claims are released, and so is a job that waits to run alone in the worker."""
        self._closed = True
        if self._sole is not None and not self._sole.begun:
            self.stop(self._sole, StopReason.YIELDING)

    # -- room

    def free(self) -> int:
        if self._closed or self._sole is not None or not self._executors.ready:
            return 0
        return self._rules.capacity - len(self._active)

    async def wait_for_change(self) -> None:
        await self._wakeup.wait()

    def room_changed(self) -> None:
        self._wakeup.wake()

    # -- leases

    def running(self) -> tuple[Attempt, ...]:
        return tuple(self._active)

    async def idle(self) -> None:
        """Return when no attempt is running."""
        while self._active:
            await self._wakeup.wait()

    def renewable(self) -> list[Attempt]:
        # First, because a process that was suspended must not renew leases that it should have given up.
        self.look()
        now = self._clock.monotonic()
        held = (*self._active, *self._settler.unsettled())
        return [one for one in held if one.reason is not StopReason.LOST and now < self._terms.gone(one.lease_ends)]

    def stop(self, attempt: Attempt, reason: StopReason, grace: float | None = None) -> None:
        """Ask an attempt to stop; it is killed after its grace."""
        if attempt in self._active:
            if reason is not attempt.reason:
                logger.info("%s: %s, asked to stop", attempt, reason)
            span = self._rules.grace if grace is None else grace
            attempt.stop(reason, self._clock.monotonic(), span)

    def look(self) -> None:
        """Stop attempts that timed out or cannot be renewed, and kill those that did not stop when asked."""
        now = self._clock.monotonic()
        late = self._terms.late_by(now)
        for attempt in tuple(self._active):
            # Most are in time.
            if attempt.reason is None and (attempt.lease_ends <= late or now >= attempt.timeout_at):
                self._look_at_deadlines(attempt, now)
            if attempt.reason is not None:
                self._look_at_grace(attempt, now)

    def _look_at_deadlines(self, attempt: Attempt, now: float) -> None:
        if now >= self._terms.gone(attempt.lease_ends):
            self.stop(attempt, StopReason.LOST, 0.0)
        elif now >= self._terms.stop_at(attempt.lease_ends):
            self.stop(attempt, StopReason.UNRENEWED)
        elif now >= attempt.timeout_at:
            self.stop(attempt, StopReason.TIMED_OUT)

    def _look_at_grace(self, attempt: Attempt, now: float) -> None:
        if attempt.bearer is None:
            return
        if now >= min(attempt.kill_at, self._terms.gone(attempt.lease_ends)):
            logger.warning("%s: did not stop when asked, killed", attempt)
            attempt.bearer.kill(attempt)
        elif not attempt.insisted and now >= (attempt.stopped_at + attempt.kill_at) / 2:
            attempt.insisted = True
            attempt.bearer.insist(attempt)

    # -- starting

    def take(self, claims: list[Claim], asked_at: float) -> None:
        """Start the claimed jobs; release those that must not run here."""
        now = self._clock.monotonic()
        scratch = self._rules.scratch
        attempts = [Attempt.of(claim, asked_at, now, scratch) for claim in claims]
        refused = self._refuse(attempts, now)
        if refused:
            self._settler.tell([(attempt, Release()) for attempt in refused])
            attempts = [one for one in attempts if one not in refused]
        self._active.update(attempts)
        self._begin(attempts)
        if now - asked_at > OLD_SHARE * self._terms.lease:
            for attempt in attempts:
                self._urgency.soon(attempt)
        self._wakeup.wake()

    def _refuse(self, attempts: list[Attempt], now: float) -> set[Attempt]:
        """Attempts that must not run here: their lease ends too soon, or another job must run alone in the worker.

        Of several jobs that must run alone, one stays and waits for the running ones; another worker may have room for
        the rest.
        """
        if self._closed or self._sole is not None:
            return set(attempts)
        late = self._terms.late_by(now)
        refused = {one for one in attempts if one.lease_ends <= late}
        if soles := [one for one in attempts if one.claim.alone_in_worker and one not in refused]:
            self._sole = soles[0]
            refused.update(soles[1:])
        return refused

    def _begin(self, attempts: list[Attempt]) -> None:
        """Start the attempts. Most need only an executor and are distributed together."""
        shared = self._rules.shared
        plain = [
            one
            for one in attempts
            if (claim := one.claim).type in shared and not (claim.alone or claim.inputs or claim.doubtful)
        ]
        if len(plain) < len(attempts):
            for attempt in set(attempts).difference(plain):
                self._begin_apart(attempt)
        self._deal(plain)

    def _begin_apart(self, attempt: Attempt) -> None:
        claim = attempt.claim
        kind = self._rules.kinds.get(claim.type)
        if kind is None:
            self.ended([(attempt, Halted())])
        elif kind is HandlerKind.COMMAND or claim.inputs or claim.doubtful:
            self._spawn(attempt, self._prepare_and_run(attempt, kind))
        else:
            self._give(attempt)

    def _give(self, attempt: Attempt) -> None:
        if attempt.claim.alone or attempt.claim.type not in self._rules.shared:
            self._executors.alone().give([attempt])
        else:
            self._deal([attempt])

    def _deal(self, attempts: Sequence[Attempt]) -> None:
        if unplaced := self._executors.deal(attempts):
            self.ended([(attempt, Halted()) for attempt in unplaced])

    # -- what needs a task

    def _spawn(self, attempt: Attempt, work: Coroutine[Any, Any, None]) -> None:
        attempt.bearer = TaskBearer(self._tasks.create_task(self._guard(attempt, work)))

    async def _guard(self, attempt: Attempt, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of an attempt. The attempt ends with it, unless an executor has taken it over."""
        try:
            await work
        except FileTrouble as trouble:
            self.ended([(attempt, Failed(trouble.error))])
        except asyncio.CancelledError:
            if attempt.reason is None:
                raise
            self.ended([(attempt, Halted())])
        except Exception as error:
            logger.exception("%s: could not be run", attempt)
            self.ended([(attempt, Failed(attempt_error(attempt.claim, ErrorCode.INPUT_UNAVAILABLE, readable(error))))])

    async def _prepare_and_run(self, attempt: Attempt, kind: HandlerKind) -> None:
        """Prepare an attempt, then run it."""
        claim = attempt.claim
        if attempt is self._sole and not await self._is_alone(attempt):
            self.ended([(attempt, Halted())])
            return
        if claim.inputs:
            attempt.inputs = await fetch_inputs(self._api, attempt, self._new_backoff())
        if claim.doubtful:
            await self._confirm(attempt)
        if kind is HandlerKind.COMMAND:
            await self._run_command(attempt)
        else:
            self._give(attempt)

    async def _is_alone(self, attempt: Attempt) -> bool:
        """Wait until all other attempts have ended, while the lease is renewed; False if they do not in time."""
        attempt.timeout_at = NEVER
        alone = await within(SOLE_PATIENCE, self._wait_for_others())
        attempt.count_from(self._clock.monotonic())
        return alone is True

    async def _wait_for_others(self) -> bool:
        while len(self._active) > 1:
            await self._wakeup.wait()
        return True

    async def _confirm(self, attempt: Attempt) -> None:
        """Tell the engine that the attempt begins, and wait for its answer.

        A job that crashes its worker at once could otherwise do so for ever: before the first heartbeat it looks like
        a job whose claim was never received.
        """
        attempt.begun = True
        attempt.confirmed = asyncio.get_running_loop().create_future()
        self._urgency.soon(attempt)
        await attempt.confirmed

    async def _run_command(self, attempt: Attempt) -> None:
        program = self._rules.programs[attempt.claim.type]
        run = CommandRun(
            program, attempt, self._clock, self._rules.log_bytes, self.wrote, result_bytes=self._rules.result_bytes
        )
        attempt.bearer, attempt.begun = run, True
        self.ended([(attempt, await run.run())])

    async def _store_and_close(self, attempt: Attempt, returned: Returned) -> None:
        links = await store_outputs(self._api, attempt, returned.outputs or {}, self._new_backoff())
        self._close([(attempt, returned)], links)

    # -- events of jobs

    def wrote(self, attempt: Attempt, lines: tuple[LogLine, ...]) -> None:
        if lines:
            self._logs.wrote(attempt, lines)

    def progressed(self, attempt: Attempt, progress: Progress) -> None:
        attempt.progress = progress
        self._urgency.soon(attempt)

    def ended(self, ends: Sequence[End]) -> None:
        """Settle these attempts; those with output files once the files are stored."""
        gone = self._terms.gone_by(self._clock.monotonic())
        closing: list[End] = []
        for end in ends:
            attempt, ending = end
            attempt.bearer = None
            # An unrenewed attempt that did not stop in time is released all the same: its worker is alive.
            if attempt.lease_ends <= gone and attempt.reason is not StopReason.UNRENEWED:
                attempt.reason = StopReason.LOST
            if type(ending) is Returned and ending.outputs is not None and attempt.reason is not StopReason.LOST:
                self._spawn(attempt, self._store_and_close(attempt, ending))
            else:
                closing.append(end)
        self._close(closing)

    def _close(self, ends: Sequence[End], outputs: tuple[FileLink, ...] = ()) -> None:
        self._active.difference_update([attempt for attempt, _ in ends])
        self._settler.tell(
            [(attempt, conclude(attempt.claim, ending, attempt.reason, outputs)) for attempt, ending in ends]
        )
        if self._sole is not None and self._sole not in self._active:
            self._tasks.create_task(self._share_again(self._sole))
        for attempt, ending in ends:
            if attempt.claim.inputs or type(ending) is not Returned or ending.outputs is not None:
                self._clear(attempt.folder)
        self._wakeup.wake()

    async def _share_again(self, sole: Attempt) -> None:
        """Accept jobs again once the outcome of the job that ran alone is recorded: the next could crash the worker."""
        await within(seconds(self._terms.lease), self._settler.quiet())
        if self._sole is sole:
            self._sole = None
            self._wakeup.wake()

    def _clear(self, folder: str) -> None:
        if os.path.lexists(folder):
            self._tasks.create_task(asyncio.to_thread(remove, folder))


class TaskBearer:
    """An attempt whose files are being transferred. No user code runs, so the task is cancelled at once."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def ask(self, attempt: Attempt) -> None:
        self._task.cancel()

    def insist(self, attempt: Attempt) -> None:
        self._task.cancel()

    def kill(self, attempt: Attempt) -> None:
        self._task.cancel()
