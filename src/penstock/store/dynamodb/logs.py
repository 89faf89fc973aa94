"""The log of a job: chunks of lines, each appended in a transaction with the head, which knows where the log ends."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from penstock.model.clock import millis
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Lease, LogLine
from penstock.store.dynamodb.conditions import put_part
from penstock.store.dynamodb.context import ShardContext
from penstock.store.dynamodb.heads import ROUNDS
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import LOG, log_key, new_token
from penstock.store.dynamodb.moves import holds
from penstock.store.dynamodb.table import SortRange, TransactionRefused, check_size
from penstock.store.dynamodb.values import Item
from penstock.store.rows import LogEnd, new_lines

LOG_SLACK = timedelta(days=90)
"""By how much a chunk outlives the longest retention: for so long an attempt may run on."""

_encode = msgspec.json.Encoder().encode
_lines = msgspec.json.Decoder(list[LogLine])

Numbered = tuple[int, int, int, LogLine]


async def append_log(
    context: ShardContext, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None
) -> bool:
    """False when the fence is lost."""
    for _ in range(ROUNDS):
        head = (await context.heads.read([lease.job])).get(lease.job)
        if head is None or not holds(head, lease.fence):
            return False
        kept = list(new_lines(_end_of(head, lease), lines, cap, first))
        if not kept or await _append(context, head, lease, kept):
            return True
    raise StoreUnavailable(f"other processes change job {lease.job} all the time; retry")


def _end_of(head: Head, lease: Lease) -> LogEnd:
    course = head.course
    return LogEnd(course.log_position, course.log_size, course.log_number if course.log_fence == lease.fence else 0)


async def _append(context: ShardContext, head: Head, lease: Lease, kept: Sequence[Numbered]) -> bool:
    """Whether the chunk and the end of the log were written; not if the head was changed meanwhile."""
    position, size, number, _ = kept[-1]
    course = replace(head.course, log_position=position, log_size=size, log_number=number, log_fence=lease.fence)
    after = replace(head, course=course, token=new_token())
    chunk = _chunk(context, head, position, [line for *_, line in kept])
    check_size(chunk)
    try:
        await context.table.transact([context.swap_part(head, after), put_part(chunk)], new_token())
    except TransactionRefused:
        return False
    context.heads.remember(after)
    return True


def _chunk(context: ShardContext, head: Head, position: int, lines: Sequence[LogLine]) -> Item:
    """Named by the position of its last line, so that a reader finds the first chunk it has not seen to its end."""
    pk, sk = log_key(head.id, position)
    ttl = (context.now + millis(context.retention.longest + LOG_SLACK)) // 1000
    return {"pk": pk, "sk": sk, "n": len(lines), "d": _encode(lines), "ttl": ttl}


async def read_log(context: ShardContext, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
    """Lines after a position, and the position of the last one given."""
    lines: list[LogLine] = []
    last = after
    if limit <= 0 or not await context.heads.read([job]):
        return lines, last
    span = SortRange(least=log_key(job, after + 1).sk, most=f"{LOG}~")
    async for chunk in context.table.walk(job, span, page=50):
        end = int(chunk["sk"].removeprefix(LOG))
        for position, line in enumerate(_lines.decode(chunk["d"]), end - chunk["n"] + 1):
            if position > after:
                lines.append(line)
                last = position
            if len(lines) == limit:
                return lines, last
    return lines, last
