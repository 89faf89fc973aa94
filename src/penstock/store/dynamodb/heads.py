"""Heads of jobs as they are now, and the one way to change them: decide on a head, then swap it by its token.

A swap compares the token that the last write left, so that a decision holds if and only if the head is still the one it
was made on. Whatever a move guards (state, fence, deadlines) is thereby compared in its own write. A refused swap reads
the head again: if it has the token of this very write, an answer was lost and the move is done; else it is decided
anew.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId, ShardId, shard_of
from penstock.store.dynamodb.items import Head, head_of, moving_attributes
from penstock.store.dynamodb.keys import job_key, shard_prefix
from penstock.store.dynamodb.statements import Swap
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.rounds import run_rounds

ROUNDS = 20
"""How often a move is decided anew because other writes came first; each time one of those has succeeded."""

CACHED_HEADS = 10_000

Decide = Callable[[Head], Head | None]


class JobStep(NamedTuple):
    """A move of one job: the head that it makes of one, or None where the head does not allow it."""

    job: JobId
    decide: Decide


class PlannedSwap(NamedTuple):
    """A step that is allowed: the head it was decided on, and the new one."""

    before: Head
    after: Head


class Moved(NamedTuple):
    """The result of a step: the head it was decided on (None: no such job), and the new one (None: not allowed)."""

    before: Head | None
    after: Head | None


class Heads:
    """The heads of one shard's jobs. Heads that this process has written are tried without being read again."""

    def __init__(self, table: DynamoTable, shard: ShardId) -> None:
        self._table = table
        self._shard = shard
        self._prefix = shard_prefix(shard)
        self._written: OrderedDict[JobId, Head] = OrderedDict()

    async def read(self, jobs: Iterable[JobId]) -> dict[JobId, Head]:
        """Those of the jobs that there are, as of now. What is past its retention is gone.

        Jobs of other shards are not there, though they may lie in the same table.
        """
        items = await self._table.batch_get(job_key(job) for job in jobs if shard_of(job) == self._shard)
        now = self._table.clock.now()
        heads = (head_of(item) for item in items.values())
        return {head.id: head for head in heads if not is_past(head, now)}

    async def move(self, steps: Sequence[JobStep]) -> list[Moved]:
        """Move each job by itself. Answers in order; of two steps about one job, the first goes first."""
        return await run_rounds(steps, lambda step: step.job, self._move)

    async def _move(self, steps: Sequence[JobStep]) -> list[Moved]:
        answers: dict[JobId, Moved] = {}
        left = list(steps)
        planned = self._guess(left)
        for _ in range(ROUNDS):
            answers |= await self._swap(planned)
            left = [step for step in left if step.job not in answers]
            if not left:
                return [answers[step.job] for step in steps]
            heads = await self.read(step.job for step in left)
            answers |= _recognise(planned, heads)
            left = [step for step in left if step.job not in answers]
            planned = _plan(left, heads)
            answers |= {step.job: Moved(heads.get(step.job), None) for step in left if step.job not in planned}
        raise StoreUnavailable("other processes change the same jobs all the time; retry")

    def _guess(self, steps: Sequence[JobStep]) -> dict[JobId, PlannedSwap]:
        """The moves that the heads written by this process allow: most are still as they were written."""
        return _plan([step for step in steps if step.job in self._written], self._written)

    async def _swap(self, planned: Mapping[JobId, PlannedSwap]) -> dict[JobId, Moved]:
        """Write the new heads; those that were written, by answers that arrived."""
        if not planned:
            return {}
        for job in planned:
            self.forget(job)
        swaps = [Swap(one.after.key, changes(self._prefix, *one), {"x": one.before.token}) for one in planned.values()]
        done = await self._table.execute(swaps)
        swapped = [one for one, was_done in zip(planned.values(), done, strict=True) if was_done]
        for one in swapped:
            self.remember(one.after)
        return {one.after.id: Moved(*one) for one in swapped}

    def remember(self, head: Head) -> None:
        """Note a head that this process has written."""
        self._written[head.id] = head
        if len(self._written) > CACHED_HEADS:
            self._written.popitem(last=False)

    def forget(self, job: JobId) -> None:
        self._written.pop(job, None)


def changes(prefix: str, before: Head, after: Head) -> dict[str, object]:
    """The attributes in which two heads of a job differ, and those that another process may have removed."""
    old, new = moving_attributes(prefix, before), moving_attributes(prefix, after)
    return {name: value for name, value in new.items() if value != old.get(name) or name in _JOURNAL}


_JOURNAL = frozenset({"en", "ut", "up", "uq"})


def is_past(head: Head, now: int) -> bool:
    """Whether a job's retention is over: its row is gone, or about to be deleted."""
    return head.ttl is not None and head.ttl * 1000 <= now


def _plan(steps: Iterable[JobStep], heads: Mapping[JobId, Head]) -> dict[JobId, PlannedSwap]:
    """The steps that their heads allow."""
    decided = [(heads[step.job], step.decide(heads[step.job])) for step in steps if step.job in heads]
    return {before.id: PlannedSwap(before, after) for before, after in decided if after is not None}


def _recognise(planned: Mapping[JobId, PlannedSwap], heads: Mapping[JobId, Head]) -> dict[JobId, Moved]:
    """The moves that were done though their answers were lost."""
    return {job: Moved(*one) for job, one in planned.items() if job in heads and heads[job].token == one.after.token}
