"""Moves that take a running job from its worker, or mark it: reclaim, cancel, and fencing off after a restore.

Each is a transaction of the job and the worker's sheet, so that the next beat of that worker learns of it.
"""

import logging
from collections.abc import Sequence
from functools import partial

from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Cancellation
from penstock.model.lifecycle import Event, Move, State
from penstock.store.dynamodb.concurrency import gather_bounded
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.heads import ROUNDS, Decide, JobStep, Moved
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import new_token
from penstock.store.dynamodb.lines import walk_running
from penstock.store.dynamodb.moves import event_of, fence_off
from penstock.store.dynamodb.sheets import CANCEL, LOST, Sheet
from penstock.store.dynamodb.table import TransactionRefused
from penstock.store.dynamodb.values import Item

logger = logging.getLogger(__name__)


async def reclaim(context: ShardContext, limit: int) -> list[Event]:
    """Reclaim the leases that ran out first."""
    now = context.now
    candidates = sorted(
        [item async for item in walk_running(context) if item["un"] <= now], key=lambda item: item["un"]
    )
    sheets = await context.sheets.read(item["w"] for item in candidates)
    lapsed = [JobId(item["pk"]) for item in candidates if not _is_renewed(sheets[item["w"]], item, now)][:limit]
    heads = await context.heads.read(lapsed)
    moved = await gather_bounded(
        [_reclaim_one(context, heads[job], sheets.get(heads[job].worker or ""), now) for job in lapsed if job in heads]
    )
    await context.record_ends([one.after for one in moved if one.after is not None])
    return [event_of(one.before, one.after, Move.RECLAIM, now) for one in moved if one.after is not None]


def _is_renewed(sheet: Sheet, item: Item, now: int) -> bool:
    lease = sheet.lease(JobId(item["pk"]), item["f"])
    return lease is not None and lease.until > now


async def _reclaim_one(context: ShardContext, head: Head, sheet: Sheet | None, now: int) -> Moved:
    """Take back one job, if its head and its lease in the sheet are still as they were read."""
    lease = None if sheet is None else sheet.lease(head.id, head.fence)
    if sheet is None or (lease is not None and lease.until > now):
        return Moved(head, None)
    after = context.moves.reclaim(head, now, begun=lease is not None and lease.begun)
    if after is None:
        return Moved(head, None)
    parts = [context.sheets.mark_part(head, LOST, seen=sheet), context.swap_part(head, after)]
    context.heads.forget(head.id)
    try:
        await context.table.transact(parts, new_token())
    except TransactionRefused:
        return Moved(head, None)
    return Moved(head, after)


async def cancel(context: ShardContext, jobs: Sequence[JobId], *, force: bool) -> list[Cancellation]:
    """One answer each, in order; of a job named twice the first answer has the event."""
    now = context.now
    decide = partial(context.moves.cancel, now=now, force=force)
    steps = [JobStep(job, decide) for job in dict.fromkeys(jobs)]
    moved = {step.job: one for step, one in zip(steps, await move_held(context, steps), strict=True)}
    await context.record_ends([one.after for one in moved.values() if one.after is not None])
    heads = [one.after or one.before for one in moved.values()]
    whole = await context.jobs.whole(head for head in heads if head is not None)
    events = {
        job: event_of(one.before, one.after, Move.CANCEL, now) for job, one in moved.items() if one.after is not None
    }
    return [Cancellation(whole.get(job), events.pop(job, None)) for job in jobs]


async def move_held(context: ShardContext, steps: Sequence[JobStep]) -> list[Moved]:
    """Move jobs that may be running, each with a mark for its worker if it is. Answers in order."""
    return await gather_bounded([_move_one(context, step) for step in steps])


async def _move_one(context: ShardContext, step: JobStep) -> Moved:
    for _ in range(ROUNDS):
        head = (await context.heads.read([step.job])).get(step.job)
        after = None if head is None else step.decide(head)
        if head is None or after is None:
            return Moved(head, None)
        if head.state is not State.RUNNING:
            (moved,) = await context.heads.move([JobStep(step.job, _unless_running(step.decide))])
            if moved.after is not None:
                return moved
        elif await _swap_held(context, head, after):
            return Moved(head, after)
    raise StoreUnavailable(f"other processes change job {step.job} all the time; retry")


def _unless_running(decide: Decide) -> Decide:
    return lambda head: None if head.state is State.RUNNING else decide(head)


async def _swap_held(context: ShardContext, head: Head, after: Head) -> bool:
    """Swap the head of a running job, and leave a mark for its worker; False if it was changed meanwhile."""
    mark = CANCEL if after.fence == head.fence else LOST
    context.heads.forget(head.id)
    parts = [context.swap_part(head, after), context.sheets.mark_part(head, mark)]
    try:
        await context.table.transact(parts, new_token())
    except TransactionRefused:
        return False
    return True


async def raise_epoch(context: ShardContext) -> None:
    """Raise the epoch, then end the leases of all that runs: no fence from before counts any more."""
    epoch = await context.admissions.raise_epoch()
    now = context.now
    decide = partial(fence_off, epoch=epoch, now=now)
    moved = await move_held(context, [JobStep(JobId(item["pk"]), decide) async for item in walk_running(context)])
    count = sum(one.after is not None for one in moved)
    logger.warning("the shard's epoch is %d now, and %d running jobs start again", epoch, count)
