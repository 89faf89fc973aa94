"""How a worker gets jobs: by the tickets in the broker, from the backlogs in the store, or by the next ticket."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from operator import attrgetter

from msgspec import Raw
from msgspec.structs import replace

from penstock.engine.catalog import CatalogReading
from penstock.engine.parts import EngineParts
from penstock.engine.type_fit import unfit_types
from penstock.engine.window import BacklogHints
from penstock.model.clock import seconds
from penstock.model.declarations import UNFIT_FOR, plain_type
from penstock.model.errors import BrokerUnavailable, CorruptObject, NotFound, Unavailable
from penstock.model.ids import ShardId
from penstock.model.job import BacklogKey, Claim, ErrorCode, JobError, Lease, ObjectLink, Ticket
from penstock.model.wire.jobs import Outcome, Refusal
from penstock.model.workers import WorkRequest
from penstock.store import Shard, Share
from penstock.store.answers import PATIENCE, Call, error_of, group_by, let_finish, run_to_end, wait_for_all

ZERO = timedelta(0)
BROKERLESS_INTERVAL = timedelta(milliseconds=500)
"""How often a waiting claim reads the backlogs while the broker is unavailable."""

_QUEUE = attrgetter("queue")
_SHARD: Callable[[Ticket], ShardId] = attrgetter("shard")

Settle = Callable[[Sequence[Outcome]], Awaitable[list[Refusal]]]
Release = Callable[[Sequence[Lease]], Awaitable[list[Refusal]]]


class Claims:
    """Claims jobs for workers. Jobs claimed for a worker that has disconnected meanwhile are given back."""

    def __init__(self, parts: EngineParts, settle: Settle, release: Release) -> None:
        self._store = parts.store
        self._clock = parts.clock
        self._catalog = parts.catalog
        self._tickets = parts.tickets
        self._files = parts.files
        self._meters = parts.meters
        self._signals = parts.signals
        self._rng = parts.rng
        self._lease = seconds(parts.settings.timing.lease_seconds)
        self._settle = settle
        self._release = release
        self._hints = BacklogHints(parts.clock)
        self._widened_by_worker: tuple[CatalogReading | None, dict[str, tuple[WorkRequest, WorkRequest]]] = (None, {})

    async def claim(self, worker: str, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Claim]:
        """Up to `limit` jobs as soon as there are any; none after `wait`."""
        clock = self._clock
        deadline = clock.monotonic() + wait.total_seconds()
        while True:
            reading = await self._catalog.read()
            left = seconds(max(0.0, deadline - clock.monotonic()))
            claims = await self._claim_once(worker, self._widen(worker, wanted, reading), limit, left)
            if claims or clock.monotonic() >= deadline:
                return _under_new_names(claims, wanted, reading) if reading.aliases else claims

    def _widen(self, worker: str, wanted: WorkRequest, reading: CatalogReading) -> WorkRequest:
        """What a worker wants, by the stored types of jobs. Computed once per reading of the registry."""
        if self._widened_by_worker[0] is not reading:
            self._widened_by_worker = reading, {}
        known = self._widened_by_worker[1].get(worker)
        if known is None or known[0] != wanted:
            known = self._widened_by_worker[1][worker] = wanted, _widened(worker, wanted, reading)
        return known[1]

    async def _claim_once(self, worker: str, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Claim]:
        """Tickets before backlogs: their jobs are older, unless a backlog has jobs of a higher priority.

        Without a broker there are only the backlogs.
        """
        backlogs = await self._read_backlogs(wanted)
        wanted, tickets = replace(wanted, expected=backlogs), self._tickets
        try:
            urgent = self._hints.priorities(self._store.shards(), backlogs)
            if taken := await tickets.take(replace(wanted, least_priority=urgent), limit, ZERO):
                return await self._claim_tickets(taken, worker, limit, backlogs)
            if claims := await self._claim_backlogs(worker, limit, self._to_check(backlogs)):
                return claims
            taken = await tickets.take(wanted, limit, wait) if urgent or wait > ZERO else []
            return await self._claim_tickets(taken, worker, limit, backlogs) if taken else []
        except BrokerUnavailable:
            claims = await self._without_broker(worker, wanted, limit)
            if not claims:
                await self._clock.sleep(min(wait, BROKERLESS_INTERVAL))
            return claims

    async def _read_backlogs(self, wanted: WorkRequest) -> frozenset[BacklogKey]:
        """The backlogs that the worker reads itself; jobs sent to a queue other than their type's come by tickets."""
        types = (await self._catalog.read()).types.values()
        return frozenset(
            BacklogKey(declared.queue, declared.name)
            for declared in types
            if wanted.wants(declared.queue, declared.name)
        )

    # -- by tickets

    async def _claim_tickets(
        self, tickets: Sequence[Ticket], worker: str, limit: int, backlogs: frozenset[BacklogKey]
    ) -> list[Claim]:
        taken = {(ticket.shard, ticket.queue, ticket.type) for ticket in tickets}
        keys = {(shard, BacklogKey(queue, type_name)) for shard, queue, type_name in taken}
        if len(tickets) >= limit:
            self._hints.mark_full(keys)
        if dispatched := {key for _, key in keys} - backlogs:
            await self._tickets.wake_if_low(dispatched)
        parts = list(group_by(tickets, _SHARD).values())
        return await self._claim_and_fill([(self._store.claim(part, worker, self._lease), part) for part in parts])

    # -- from backlogs

    def _to_check(self, backlogs: Iterable[BacklogKey]) -> list[tuple[Shard, list[BacklogKey]]]:
        found = [(shard, self._hints.to_check(shard.shard, backlogs)) for shard in self._store.shards()]
        return [(shard, due) for shard, due in found if due]

    async def _claim_backlogs(
        self, worker: str, limit: int, backlogs: Sequence[tuple[Shard, Sequence[BacklogKey]]]
    ) -> list[Claim]:
        """An equal share from each shard."""
        if not backlogs:
            return []
        asked = zip(self._rng.sample(backlogs, len(backlogs)), _shares(limit, len(backlogs)), strict=True)
        return await self._claim_and_fill(
            [(self._claim_next(shard, worker, share, mine), ()) for (shard, mine), share in asked if share]
        )

    async def _without_broker(self, worker: str, wanted: WorkRequest, limit: int) -> list[Claim]:
        """From all backlogs, also of jobs that were sent to a queue other than their type's."""
        shards = self._store.shards()
        asked = zip(self._rng.sample(shards, len(shards)), _shares(limit, len(shards)), strict=True)
        return await self._claim_and_fill(
            [(self._claim_any(shard, worker, wanted, share), ()) for shard, share in asked if share]
        )

    async def _claim_any(self, shard: Shard, worker: str, wanted: WorkRequest, limit: int) -> list[Claim]:
        waiting = (await shard.due_summary()).backlog
        return await self._claim_next(shard, worker, limit, [backlog for backlog in waiting if wanted.wants(*backlog)])

    async def _claim_next(self, shard: Shard, worker: str, limit: int, backlogs: Sequence[BacklogKey]) -> list[Claim]:
        """Up to `limit`, as many from each queue as from the others while they have jobs."""
        claims: list[Claim] = []
        types = group_by(backlogs, lambda backlog: backlog.queue)
        left = self._rng.sample(sorted(types), len(types))
        while left and len(claims) < limit:
            shares = zip(left, _shares(limit - len(claims), len(left)), strict=True)
            asked = [Share(queue, [backlog.type for backlog in types[queue]], jobs) for queue, jobs in shares if jobs]
            try:
                got = await shard.claim_next(asked, worker, self._lease)
            except Unavailable:
                # Tickets and other shards go on; this shard is not asked again for CHECK_INTERVAL, as if it were empty.
                self._hints.record_check(shard.shard, asked, [])
                return claims
            self._hints.record_check(shard.shard, asked, got)
            found = Counter(map(_QUEUE, got))
            ended = {share.queue for share in asked if found[share.queue] < share.jobs}
            left = [queue for queue in left if queue not in ended]
            claims += got
        return claims

    # -- together

    async def _claim_and_fill(self, asked: "Sequence[tuple[Awaitable[list[Claim]], Sequence[Ticket]]]") -> list[Claim]:
        """Claim, and read large params in.

        If the caller is cancelled meanwhile, or something fails, the claimed jobs are given back.
        """
        claiming = asyncio.ensure_future(self._gather(asked))
        filled: list[Claim] | None = None
        try:
            filled = await self._fill_all(await asyncio.shield(claiming))
            self._meters.note_claims(filled)
            self._signals.journal.tell()
            return filled
        finally:
            if filled is None:
                await run_to_end(self._undo(claiming, ()))

    async def _fill_all(self, claims: Sequence[Claim]) -> list[Claim]:
        if given_back := [claim for claim in claims if UNFIT_FOR in claim.type]:
            claims = [*(claim for claim in claims if claim not in given_back), *await self._restore_types(given_back)]
        small = [claim for claim in claims if claim.params_object is None]
        if len(small) == len(claims):
            return small
        filled = [
            claim if claim.params_object is None else await self._fill(claim, claim.params_object) for claim in claims
        ]
        return [claim for claim in filled if claim is not None]

    async def _restore_types(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims with the jobs' own type, instead of the stored type under which they waited for this worker."""
        for name in {plain_type(claim.type) for claim in claims}:
            await self._store.retype([_lease(claim) for claim in claims if plain_type(claim.type) == name], name)
        return [replace(claim, type=plain_type(claim.type)) for claim in claims]

    async def _gather(self, asked: "Sequence[tuple[Awaitable[list[Claim]], Sequence[Ticket]]]") -> list[Claim]:
        """The claims of all shards. Tickets of a shard that does not answer are published again a little later."""
        calls: dict[Call[list[Claim]], Sequence[Ticket]] = {
            asyncio.ensure_future(call): tickets for call, tickets in asked
        }
        late = await wait_for_all(calls, PATIENCE)
        claims: list[Claim] = []
        lost = 0
        for call, tickets in calls.items():
            if call in late:
                let_finish(asyncio.ensure_future(self._undo(call, tickets)))
            elif error_of(call) is not None:
                self._tickets.publish_later(tickets)
                lost += 1
            else:
                claims += call.result()
                # Only now: the ticket of a job that was claimed, or is gone, need not come again.
                await self._tickets.discard(tickets)
        if lost == len(calls):
            next(iter(calls)).result()
        return claims

    async def _undo(self, call: Call[list[Claim]], tickets: Sequence[Ticket]) -> None:
        """Give back what a call still claims: its shard was too slow, or the caller was cancelled."""
        try:
            claims = await call
            await self._tickets.discard(tickets)
            await self._give_back(claims)
        except Unavailable:
            self._tickets.publish_later(tickets)

    async def _give_back(self, claims: Sequence[Claim]) -> None:
        await self._release([_lease(claim) for claim in claims])

    async def _fill(self, claim: Claim, link: ObjectLink) -> Claim | None:
        """The claim with its large params read in; None, and the job given back or failed, if they cannot be read."""
        try:
            params = await self._files.read_value(link)
        except Unavailable:
            await self._give_back([claim])
            return None
        except (NotFound, CorruptObject) as error:
            failure = JobError(ErrorCode.CORRUPT_INPUT, f"params: {error.message}")
            await self._settle([Outcome(job=claim.job, fence=claim.fence, error=failure)])
            return None
        return replace(claim, params=Raw(params), params_object=None)


def _shares(whole: int, parts: int) -> list[int]:
    """`whole` split as evenly as possible; the first shares get the remainder."""
    least, more = divmod(whole, parts)
    return [least + (place < more) for place in range(parts)]


def _lease(claim: Claim) -> Lease:
    return Lease(claim.job, claim.fence)


def _widened(worker: str, wanted: WorkRequest, reading: CatalogReading) -> WorkRequest:
    """The request without paused queues, with old names of renamed types, and with jobs that other workers refused."""
    mine = wanted.types | wanted.only_given_back
    old = frozenset(name for name in reading.aliases if reading.run_as(name) in mine)
    types = wanted.types | {name for name in old if reading.run_as(name) in wanted.types}
    return replace(
        wanted,
        types=types | unfit_types(mine | old, worker, reading),
        except_queues=reading.paused | wanted.except_queues,
        only_given_back=frozenset(),
    )


def _under_new_names(claims: list[Claim], wanted: WorkRequest, reading: CatalogReading) -> list[Claim]:
    """Each claim under the type whose handler the worker has: the new name if it has that, else its own."""
    mine = wanted.types | wanted.only_given_back
    names = {claim.type: reading.run_as(claim.type) for claim in claims}
    return [replace(claim, type=name) if (name := names[claim.type]) in mine else claim for claim in claims]
