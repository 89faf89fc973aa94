"""The moves of a lease: claim, settle, release, retype. Renewals are in `renewals`, losses in `losses`."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from penstock.model.clock import millis
from penstock.model.job import Claim, Lease, Loss, Settled, Settlement, Ticket
from penstock.model.lifecycle import TERMINAL, Move
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.heads import JobStep, Moved
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import new_end_key
from penstock.store.dynamodb.moves import error_bytes, event_of, is_large
from penstock.store.dynamodb.values import Item, ItemKey

OUTCOME_SLACK = timedelta(days=90)
"""By how much the large part of an outcome outlives the longest retention: its job may be tried again for so long."""


class Wanted(NamedTuple):
    """A job to be claimed for a worker."""

    ticket: Ticket
    worker: str
    lease: timedelta


async def claim(context: ShardContext, wanted: Sequence[Wanted]) -> list[Claim | None]:
    """One answer each, in order; None for a job that is no longer there to be claimed."""
    steps = await _claim_steps(context, wanted, unticketed=False)
    moved = await context.heads.move(steps)
    claimed = [(one.after, asked.lease) for one, asked in zip(moved, wanted, strict=True) if one.after is not None]
    claims = iter(await context.jobs.claims([head for head, _ in claimed], [lease for _, lease in claimed]))
    return [None if one.after is None else next(claims) for one in moved]


async def claim_unticketed(context: ShardContext, wanted: Sequence[Wanted]) -> list[Head | None]:
    """As `claim`, for jobs that have no ticket: heads, in the order given."""
    moved = await context.heads.move(await _claim_steps(context, wanted, unticketed=True))
    return [one.after for one in moved]


async def _claim_steps(context: ShardContext, wanted: Sequence[Wanted], *, unticketed: bool) -> list[JobStep]:
    epoch = (await context.admissions.read()).epoch
    clock = context.table.clock
    now, latest = clock.now(), clock.latest()
    return [
        JobStep(
            one.ticket.job,
            partial(
                context.moves.claim,
                worker=one.worker,
                now=now,
                until=latest + millis(one.lease),
                epoch=epoch,
                unticketed=unticketed,
            ),
        )
        for one in wanted
    ]


async def settle(context: ShardContext, settlements: Sequence[Settlement]) -> list[Settled]:
    """One answer each, in order."""
    now = context.now
    apart = {index: new_end_key(one.job, one.fence) for index, one in enumerate(settlements) if _has_large(one)}
    await context.table.put_all([_end_item(context, settlements[index], key, now) for index, key in apart.items()])
    moved = await context.heads.move(
        [_settle_step(context, one, now, apart.get(index)) for index, one in enumerate(settlements)]
    )
    await context.record_ends([one.after for one in moved if one.after is not None])
    return [_settled(one, shown, Move.SETTLE, now) for one, shown in zip(moved, settlements, strict=True)]


def _settle_step(context: ShardContext, one: Settlement, now: int, apart: ItemKey | None) -> JobStep:
    def decide(head: Head) -> Head | None:
        sheet = context.sheets.known(head.worker)
        lease = None if sheet is None else sheet.lease(head.id, head.fence)
        progress = head.course.progress if lease is None else lease.progress
        return context.moves.settle(head, one, now, apart=apart.sk if apart else None, progress=progress)

    return JobStep(one.job, decide)


def _has_large(one: Settlement) -> bool:
    return is_large(one.result) or is_large(error_bytes(one))


def _end_item(context: ShardContext, one: Settlement, key: ItemKey, now: int) -> Item:
    kept = context.retention.longest + (timedelta(days=1) if one.state in TERMINAL else OUTCOME_SLACK)
    error = error_bytes(one)
    return {
        "pk": key.pk,
        "sk": key.sk,
        "result": one.result if is_large(one.result) else None,
        "error": error if is_large(error) else None,
        "ttl": (now + millis(kept)) // 1000,
    }


class GivenBack(NamedTuple):
    """A running job to be put back."""

    lease: Lease
    suspect: bool
    delay: timedelta | None


async def release(context: ShardContext, given_back: Sequence[GivenBack]) -> list[Settled]:
    """One answer each, in order."""
    now = context.now
    steps = [
        JobStep(
            one.lease.job,
            partial(context.moves.release, fence=one.lease.fence, now=now, suspect=one.suspect, delay=one.delay),
        )
        for one in given_back
    ]
    moved = await context.heads.move(steps)
    await context.record_ends([one.after for one in moved if one.after is not None])
    return [_settled(one, shown.lease, Move.RELEASE, now) for one, shown in zip(moved, given_back, strict=True)]


async def retype(context: ShardContext, leases: Sequence[Lease], type_name: str) -> None:
    """Nothing happens to jobs whose fence is another now."""
    now = context.now
    await context.heads.move(
        [
            JobStep(lease.job, partial(context.moves.retype, fence=lease.fence, type_name=type_name, now=now))
            for lease in leases
        ]
    )


def _settled(moved: Moved, shown: Lease | Settlement, move: Move, now: int) -> Settled:
    if moved.after is None:
        return Settled(shown.job, shown.fence, None, loss_of(moved.before, shown.fence))
    return Settled(shown.job, shown.fence, event_of(moved.before, moved.after, move, now), None)


def loss_of(head: Head | None, shown: int) -> Loss:
    """Why a fence was refused.

    A job that still has the fence shown but is not running was settled or released under it: every other way out of
    running raises the fence.
    """
    if head is None:
        return Loss.GONE
    return Loss.MINE_ALREADY if head.fence == shown else Loss.LOST
