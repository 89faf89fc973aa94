"""The submit move: insert new jobs, or find the ones that their keys already have.

A job without a key is one conditional put, many of which go in one call. One with a key is a transaction: key and job
come into being together, or neither does.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from penstock.model.clock import to_millis
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Job, NewJob
from penstock.model.lifecycle import Move
from penstock.model.submission import Inserted, Known, Misplaced, Submission
from penstock.store.dynamodb.concurrency import gather_bounded
from penstock.store.dynamodb.conditions import ABSENT, ItemCondition
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.insertions import JobInsertion
from penstock.store.dynamodb.keys import idempotency_key, millis_key, new_token
from penstock.store.dynamodb.schema import AGE
from penstock.store.dynamodb.statements import Insert
from penstock.store.dynamodb.table import BATCH_KEYS, SortRange, TransactionRefused
from penstock.store.dynamodb.values import Item
from penstock.store.rounds import run_rounds

ATTEMPTS = 5
"""How often a keyed submit is tried while its key passes from job to job."""


class Submits:
    """Inserts jobs into one shard, and finds jobs by key."""

    def __init__(self, context: ShardContext) -> None:
        self._table = context.table
        self._prefix = context.prefix
        self._heads = context.heads
        self._jobs = context.jobs
        self._inserter = context.inserter
        self._admissions = context.admissions

    async def submit(self, jobs: Sequence[NewJob], ticket_for: timedelta) -> list[Submission]:
        """One answer each, in order."""
        admission = (await self._admissions.read()).admission
        now = self._table.clock.now()
        planned = [self._inserter.plan(new, now, ticket_for) for new in jobs if admission.takes(new.ring)]
        await self._table.put_all([item for insertion in planned for item in insertion.beside()])
        plain, keyed = await asyncio.gather(
            run_rounds([one for one in planned if one.new.key is None], _job, self._insert_plain),
            run_rounds([one for one in planned if one.new.key is not None], _key, self._insert_keyed),
        )
        answers = {"plain": iter(plain), "keyed": iter(keyed)}
        return [
            next(answers["plain" if new.key is None else "keyed"]) if admission.takes(new.ring) else Misplaced(new)
            for new in jobs
        ]

    async def _insert_plain(self, planned: Sequence[JobInsertion]) -> list[Submission]:
        if not planned:
            return []
        done = await self._table.execute([Insert(insertion.item) for insertion in planned])
        refused = [one.head.id for one, inserted in zip(planned, done, strict=True) if not inserted]
        there = await self._heads.read(refused) if refused else {}
        whole = await self._jobs.whole(there.values()) if there else {}
        return [
            self._inserted(one) if inserted or _is_own(one, there) else Known(_found(whole, one.head.id))
            for one, inserted in zip(planned, done, strict=True)
        ]

    async def _insert_keyed(self, planned: Sequence[JobInsertion]) -> list[Submission]:
        return await gather_bounded(self._insert_one(insertion) for insertion in planned)

    async def _insert_one(self, insertion: JobInsertion) -> Submission:
        condition = ABSENT
        for _ in range(ATTEMPTS):
            try:
                await self._table.transact(insertion.parts(condition), new_token())
            except TransactionRefused as refused:
                if refused.conflict:
                    continue
                there, key = await self._find(insertion, refused)
                if there is not None:
                    return there
                condition = _replaces(key)
            else:
                return self._inserted(insertion)
        raise StoreUnavailable(
            f"the idempotency key {insertion.new.key!r} passes from job to job at this moment; retry", retry_after=1
        )

    async def _find(
        self, insertion: JobInsertion, refused: TransactionRefused
    ) -> tuple[Submission | None, Item | None]:
        """The job that stands in the way; none, but the key item, if that job is gone."""
        new, key = insertion.new, refused.olds[0]
        heads = await self._heads.read({new.id} if key is None else {JobId(key["job"]), new.id})
        owner = new.id if key is None else JobId(key["job"])
        if _is_own(insertion, heads) and owner == new.id:
            return self._inserted(insertion), None
        if owner not in heads:
            return None, key
        job = (await self._jobs.whole([heads[owner]]))[owner]
        return Known(job, conflict=key is not None and key["fp"] != new.fingerprint), None

    def _inserted(self, insertion: JobInsertion) -> Inserted:
        self._heads.remember(insertion.head)
        return Inserted(insertion.new, insertion.head.origin.created, Move.SUBMIT)

    async def find_keyed(self, jobs: Sequence[NewJob]) -> list[Known | Misplaced | None]:
        """One answer each, in order."""
        ring = (await self._admissions.read()).admission.ring
        keys = [idempotency_key(self._prefix, new.key or "") for new in jobs]
        items = await self._table.batch_get(keys)
        found = await self._heads.read(JobId(item["job"]) for item in items.values())
        whole = await self._jobs.whole(found.values())
        return [
            _known(whole, items.get(key), new) if new.ring == ring else Misplaced(new)
            for new, key in zip(jobs, keys, strict=True)
        ]

    async def has_keys_before(self, at: datetime) -> bool:
        """Walks jobs by age: it is asked only while keys may have another place than by the present ring."""
        before = SortRange(most=millis_key(to_millis(at)))
        keyed: list[JobId] = []
        async for item in self._table.walk(f"{self._prefix}age", before, index=AGE):
            if item.get("k"):
                keyed.append(JobId(item["pk"]))
            if len(keyed) == BATCH_KEYS:
                if await self._heads.read(keyed):
                    return True
                keyed = []
        return bool(keyed and await self._heads.read(keyed))


def _job(insertion: JobInsertion) -> JobId:
    return insertion.head.id


def _key(insertion: JobInsertion) -> str | None:
    return insertion.new.key


def _is_own(insertion: JobInsertion, heads: Mapping[JobId, object]) -> bool:
    """Whether the job that is there was inserted by this very call, whose answer was lost."""
    there = heads.get(insertion.head.id)
    return getattr(there, "order", None) == insertion.head.order


def _found(whole: Mapping[JobId, Job], job: JobId) -> Job:
    if job not in whole:
        raise StoreUnavailable(f"job {job} is past its retention, and its row is still there; submit under another id")
    return whole[job]


def _known(whole: Mapping[JobId, Job], key: Item | None, new: NewJob) -> Known | None:
    if key is None or key["job"] not in whole:
        return None
    return Known(whole[JobId(key["job"])], conflict=key["fp"] != new.fingerprint)


def _replaces(key: Item | None) -> ItemCondition:
    return ABSENT if key is None else ItemCondition("attribute_not_exists(pk) OR job = :former", former=key["job"])
