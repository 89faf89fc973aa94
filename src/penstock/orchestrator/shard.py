"""One shard behind its breaker: calls are refused at once while the shard is down, and take a limited time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import Clock
from penstock.model.errors import MapChanged, StoreBusy, StoreUnavailable
from penstock.model.ids import ShardId
from penstock.model.job import NewJob
from penstock.model.shards import ShardMember, ShardState
from penstock.store.seam import Capabilities, Shard

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("penstock.orchestrator")

FAILURES_TO_FALL = 2
PROBES_TO_RISE = 2
RETRY_AFTER_SECONDS = 1
CALL_DEADLINE = timedelta(seconds=5)


class ShardHealth(Struct, frozen=True):
    """A shard's health, since when, and how many consecutive results contradict it."""

    healthy: bool
    since: datetime
    steps: int = 0

    def note(self, ok: bool, now: datetime, *, probe: bool = False) -> "ShardHealth":
        """The health after one more result. While the shard is down only probes count: no other call is sent then."""
        if not self.healthy and not probe:
            return self
        if ok is self.healthy:
            return replace(self, steps=0) if self.steps else self
        needed = FAILURES_TO_FALL if self.healthy else PROBES_TO_RISE
        if self.steps + 1 >= needed:
            return ShardHealth(not self.healthy, now)
        return replace(self, steps=self.steps + 1)


class ShardBreaker:
    """Lets calls through to a healthy shard, each with a deadline, and refuses calls at once while it is down.

    When the shard goes down, the calls that still wait for it are refused too.
    """

    def __init__(
        self, shard: ShardId, clock: Clock, deadline: timedelta = CALL_DEADLINE, *, healthy: bool = True
    ) -> None:
        self.shard = shard
        self.health = ShardHealth(healthy, clock.now())
        self.reason: str | None = None
        self.calls = 0
        self.failures = 0
        self._clock = clock
        self._deadline = deadline
        self._waiting: set[asyncio.Timeout] = set()

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the shard answers; StoreUnavailable, naming the shard, when it is down, fails or takes too long."""
        if not self.health.healthy:
            raise self.refusal(sent=False)
        self.calls += 1
        answer = await self._try(call, self._deadline, probe=False)
        if self.health.steps:
            self._note(ok=True, probe=False)
        return answer

    async def probe(self, call: Callable[[], Awaitable[T]], deadline: timedelta) -> T:
        """As `run`, but also while the shard is down: probes decide when it is healthy again."""
        answer = await self._try(call, deadline, probe=True)
        self._note(ok=True, probe=True)
        return answer

    def record(self, *, ok: bool, reason: str | None = None) -> None:
        """Count a result that was seen elsewhere as a probe."""
        self._note(ok=ok, probe=True, reason=reason)

    def refusal(self, *, sent: bool) -> StoreUnavailable:
        """`sent`: the shard may have been asked before it was known to be down."""
        since = f"{self.health.since:%Y-%m-%d %H:%M:%S}Z"
        return self._error(f"shard {self.shard} does not answer since {since}; retry in a moment", sent=sent)

    async def _try(self, call: Callable[[], Awaitable[T]], deadline: timedelta, *, probe: bool) -> T:
        try:
            return await self._run_limited(call, asyncio.timeout(deadline.total_seconds()), probe=probe)
        except TimeoutError:
            error = self._late(deadline)
            self._note(ok=False, probe=probe, reason=error.message)
            raise error from None
        except MapChanged:
            # An answer like any other: the caller used another map.
            raise
        except StoreBusy as error:
            # It says nothing about the shard's health: to refuse all calls would leave the same connections unused.
            raise StoreBusy(
                f"shard {self.shard}: {error.message}", shard=self.shard, retry_after=RETRY_AFTER_SECONDS
            ) from error
        except StoreUnavailable as error:
            self._note(ok=False, probe=probe, reason=error.message)
            raise self._error(f"shard {self.shard}: {error.message}", sent=not error.unsent) from error

    async def _run_limited(self, call: Callable[[], Awaitable[T]], limit: asyncio.Timeout, *, probe: bool) -> T:
        if not probe:
            self._waiting.add(limit)
        try:
            async with limit:
                return await call()
        finally:
            self._waiting.discard(limit)

    def _late(self, deadline: timedelta) -> StoreUnavailable:
        if not self.health.healthy:
            return self.refusal(sent=True)
        return self._error(
            f"shard {self.shard} did not answer within {deadline.total_seconds():g} s; retry in a moment", sent=True
        )

    def _error(self, message: str, *, sent: bool) -> StoreUnavailable:
        return StoreUnavailable(message, shard=self.shard, retry_after=RETRY_AFTER_SECONDS, sent=sent)

    def _note(self, *, ok: bool, probe: bool, reason: str | None = None) -> None:
        before, self.health = self.health, self.health.note(ok, self._clock.now(), probe=probe)
        self.failures += not ok
        if not ok and (probe or before.healthy):
            self.reason = reason
        if before.healthy and not self.health.healthy:
            logger.warning("shard %s does not answer: %s", self.shard, self.reason)
            self._release()
        elif self.health.healthy and not before.healthy:
            logger.warning("shard %s answers again", self.shard)
            self.reason = None

    def _release(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._waiting:
            if not limit.expired():
                limit.reschedule(now)


PROBE_DEADLINE = timedelta(seconds=1)
UNOPENED = Capabilities()


def _guard(
    method: Callable[Concatenate[Shard, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[GuardedShard, P], Coroutine[Any, Any, T]]":
    """A method of the same name and signature, whose calls go through the breaker to the shard."""
    name = method.__name__

    async def call(self: "GuardedShard", /, *args: P.args, **named: P.kwargs) -> T:
        answer: T = await self.breaker.run(partial(getattr(self.ask(), name), *args, **named))
        return answer

    update_wrapper(call, method)
    return call


class GuardedShard:
    """Keeps the Shard protocol over a shard that may not be open yet, with every call behind the breaker."""

    def __init__(self, member: ShardMember, breaker: ShardBreaker) -> None:
        self.member = member
        self.breaker = breaker
        self._inside: Shard | None = None

    @property
    def shard(self) -> ShardId:
        return self.member.number

    @property
    def opened(self) -> bool:
        return self._inside is not None

    @property
    def healthy(self) -> bool:
        return self._inside is not None and self.breaker.health.healthy and self.in_use

    @property
    def takes_new_jobs(self) -> bool:
        return self.member.takes_new_jobs and self.healthy

    @property
    def in_use(self) -> bool:
        """Whether its operator lets it be asked."""
        return self.member.state is not ShardState.DOWN

    def adopt(self, shard: Shard) -> None:
        """Send calls to this shard from now on."""
        self._inside = shard

    async def detach(self) -> None:
        """Close what is inside; calls are refused from now on."""
        shard, self._inside = self._inside, None
        if shard is not None:
            await shard.close()

    @property
    def capabilities(self) -> Capabilities:
        return UNOPENED if self._inside is None else self._inside.capabilities

    def shard_for(self, key: str | None = None) -> ShardId:
        return self.shard

    def epoch(self, key: str) -> None:
        return None

    def takers(self) -> None:
        return None

    @property
    def keeps_events(self) -> bool:
        return self._inside is None or self._inside.keeps_events

    def shards(self) -> Sequence[Self]:
        return (self,)

    def unavailable(self) -> tuple[ShardId, ...]:
        return () if self.healthy else (self.shard,)

    async def probe(self) -> None:
        await self.breaker.probe(lambda: self.ask().probe(), PROBE_DEADLINE)

    async def close(self) -> None:
        """Nothing to close: the shard belongs to its supervisor, which detaches it."""

    def ask(self) -> Shard:
        """The shard itself, to send one call to; StoreUnavailable while it is not open or out of use."""
        if not self.in_use:
            raise StoreUnavailable(
                f"shard {self.shard} is out of use: its operator set it down; ask again once it is active",
                shard=self.shard,
                retry_after=RETRY_AFTER_SECONDS,
                sent=False,
            )
        if self._inside is None:
            raise self.breaker.refusal(sent=False)
        return self._inside

    async def find_moved(self, jobs: Sequence[NewJob]) -> list[None]:
        return [None] * len(jobs)

    now = _guard(Shard.now)
    submit = _guard(Shard.submit)
    find_keyed = _guard(Shard.find_keyed)
    has_keys_before = _guard(Shard.has_keys_before)
    admit = _guard(Shard.admit)
    raise_epoch = _guard(Shard.raise_epoch)
    promote = _guard(Shard.promote)
    dispatch = _guard(Shard.dispatch)
    overdue_tickets = _guard(Shard.overdue_tickets)
    expire_tickets = _guard(Shard.expire_tickets)
    due_summary = _guard(Shard.due_summary)
    claim = _guard(Shard.claim)
    claim_next = _guard(Shard.claim_next)
    renew = _guard(Shard.renew)
    settle = _guard(Shard.settle)
    release = _guard(Shard.release)
    retype = _guard(Shard.retype)
    reclaim = _guard(Shard.reclaim)
    cancel = _guard(Shard.cancel)
    expire = _guard(Shard.expire)
    get = _guard(Shard.get)
    page = _guard(Shard.page)
    counts = _guard(Shard.counts)
    oldest_due = _guard(Shard.oldest_due)
    due_before = _guard(Shard.due_before)
    running_by_worker = _guard(Shard.running_by_worker)
    prune = _guard(Shard.prune)
    append_log = _guard(Shard.append_log)
    read_log = _guard(Shard.read_log)
    put_notices = _guard(Shard.put_notices)
    change_notices = _guard(Shard.change_notices)
    notices = _guard(Shard.notices)
    acquire_role = _guard(Shard.acquire_role)
    release_role = _guard(Shard.release_role)
    put_worker = _guard(Shard.put_worker)
    ask_to_drain = _guard(Shard.ask_to_drain)
    delete_worker = _guard(Shard.delete_worker)
    workers = _guard(Shard.workers)
    prune_workers = _guard(Shard.prune_workers)
    put_schedule = _guard(Shard.put_schedule)
    get_schedules = _guard(Shard.get_schedules)
    schedules = _guard(Shard.schedules)
    drop_schedule = _guard(Shard.drop_schedule)
    due_schedules = _guard(Shard.due_schedules)
    next_tick = _guard(Shard.next_tick)
    tick = _guard(Shard.tick)
    ticks = _guard(Shard.ticks)
    number_entries = _guard(Shard.number_entries)
    read_journal = _guard(Shard.read_journal)
    find_number = _guard(Shard.find_number)
    read_history = _guard(Shard.read_history)
    prune_journal = _guard(Shard.prune_journal)
    relay_state = _guard(Shard.relay_state)
    save_relay = _guard(Shard.save_relay)
    park_again = _guard(Shard.park_again)
    read_parked = _guard(Shard.read_parked)
    read_parked_of = _guard(Shard.read_parked_of)
    deliveries = _guard(Shard.deliveries)
    relay_totals = _guard(Shard.relay_totals)
    drop_relay = _guard(Shard.drop_relay)
