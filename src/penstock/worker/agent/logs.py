"""Sends the log lines of jobs to the engine."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from penstock.model.clock import Clock, seconds
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.ids import ShardId, shard_of
from penstock.model.job import LogLine
from penstock.model.ports import WorkerApi
from penstock.model.text import readable
from penstock.model.wire.jobs import LogEntry
from penstock.worker.agent.attempt import Attempt
from penstock.worker.agent.outage import Backoff, concerns_all

logger = logging.getLogger("penstock.worker")
SEND_INTERVAL = seconds(0.5)
CALL_LINES = 5_000

Lines = dict[Attempt, tuple[LogLine, ...]]
Retry = tuple[list[Attempt], PenstockError | None]


class LogQueue(Struct, eq=False):
    """The log lines for one shard, each job's in order: written, due to be sent, and being sent.

    `failing` while the shard has not taken what was sent last.
    """

    written: dict[Attempt, None] = field(default_factory=dict)
    due: dict[Attempt, None] = field(default_factory=dict)
    sent: Lines = field(default_factory=dict)
    failing: bool = False
    sending: asyncio.Task[None] | None = None


class Logs:
    """Sends lines in batches, separately for each shard. Lines that a shard cannot take yet are sent again."""

    def __init__(self, api: WorkerApi, clock: Clock, new_backoff: Callable[[], Backoff]) -> None:
        self._api = api
        self._clock = clock
        self._new_backoff = new_backoff
        self._lanes: dict[ShardId, LogQueue] = {}
        self._news = asyncio.Event()
        self._when_sent: Callable[[], None] = lambda: None

    def when_sent(self, call: Callable[[], None]) -> None:
        """Register a callback for when `pending` may have become False."""
        self._when_sent = call

    @property
    def any_unsent(self) -> bool:
        """Whether lines of any attempt are unsent. Most jobs write nothing, and need not be looked up then."""
        return any(lane.written or lane.due or lane.sent for lane in self._lanes.values())

    def wrote(self, attempt: Attempt, lines: Iterable[LogLine]) -> None:
        attempt.lines = (*attempt.lines, *lines)
        self._lanes.setdefault(shard_of(attempt.claim.job), LogQueue()).written[attempt] = None
        self._news.set()

    async def step(self) -> None:
        """Send the lines written so far, at most every half second."""
        await self._news.wait()
        self._news.clear()
        for lane in self._lanes.values():
            lane.due |= lane.written
            lane.written.clear()
            self._send(lane)
        await self._clock.sleep(SEND_INTERVAL)

    def hurry(self, attempt: Attempt) -> None:
        """Send the lines of an attempt that has ended at once."""
        lane = self._queue(attempt)
        if lane is not None and attempt in lane.written:
            del lane.written[attempt]
            lane.due[attempt] = None
            self._send(lane)

    def pending(self, attempt: Attempt) -> bool:
        """Whether lines of this attempt are unsent although its shard accepts lines: its outcome should wait."""
        lane = self._queue(attempt)
        return lane is not None and not lane.failing and (attempt in lane.due or attempt in lane.sent)

    def forget(self, attempt: Attempt) -> None:
        """Drop the unsent lines of an attempt whose lease is gone."""
        lane = self._queue(attempt)
        if lane is not None:
            for held in (lane.written, lane.due, lane.sent):
                held.pop(attempt, None)

    def close(self) -> None:
        """Drop all unsent lines."""
        for lane in self._lanes.values():
            if lane.sending is not None:
                lane.sending.cancel()

    def _queue(self, attempt: Attempt) -> LogQueue | None:
        # Most jobs write nothing.
        return self._lanes.get(shard_of(attempt.claim.job)) if self._lanes else None

    # -- sending

    def _send(self, lane: LogQueue) -> None:
        if lane.due and lane.sending is None:
            lane.sending = asyncio.ensure_future(self._send_due(lane))

    async def _send_due(self, lane: LogQueue) -> None:
        backoff = self._new_backoff()
        try:
            while lane.due:
                lane.sent = _take(lane.due)
                again, error = await self._try(lane.sent)
                for attempt, lines in lane.sent.items():
                    if attempt in again:
                        attempt.lines = (*lines, *attempt.lines)
                        lane.due[attempt] = None
                    else:
                        attempt.lines_sent += len(lines)
                lane.sent, lane.failing = {}, error is not None
                self._when_sent()
                if error is not None:
                    await backoff.wait(error)
        finally:
            lane.sending = None

    async def _try(self, lines: Lines) -> Retry:
        """Send the lines. Returns the attempts whose lines are to be sent again, and the error."""
        try:
            refused = await self._api.log(
                [LogEntry(one.claim.job, one.claim.fence, lines[one], one.lines_sent) for one in lines]
            )
        except Exception as error:  # noqa: BLE001 - lines that cannot be sent must not keep others from it
            if isinstance(error, PenstockError) and await concerns_all(error, lambda: self._api.log([])):
                return list(lines), error
            return await self._try_apart(lines, error)
        unsure = {one.job for one in refused if one.unsure}
        again = [one for one in lines if one.claim.job in unsure]
        return again, StoreUnavailable("the shard did not answer") if again else None

    async def _try_apart(self, lines: Lines, error: Exception) -> Retry:
        """Send each job's lines separately; drop those that are refused even so."""
        if len(lines) == 1:
            logger.warning("%s: log lines are dropped: %s", *lines, readable(error))
            return [], None
        left = list(lines)
        while left:
            again, trouble = await self._try({left[0]: lines[left[0]]})
            if again:
                return left, trouble
            del left[0]
        return [], None


def _take(due: dict[Attempt, None]) -> Lines:
    """Take the lines for one call from those that are due."""
    taken: Lines = {}
    count = 0
    for attempt in tuple(due):
        if count >= CALL_LINES:
            break
        del due[attempt]
        if attempt.lines:
            taken[attempt], attempt.lines = attempt.lines, ()
            count += len(taken[attempt])
    return taken
