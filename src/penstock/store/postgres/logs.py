"""What jobs have written: appended under their fence while below a cap, read by position."""

from collections.abc import Sequence

from penstock.model.ids import JobId
from penstock.model.job import Lease, LogLine
from penstock.model.timing import from_millis, to_millis
from penstock.store.log_lines import LogEnd, new_lines
from penstock.store.postgres.arrays import bigints, texts
from penstock.store.postgres.statements import Connection, execute, load, query
from penstock.store.postgres.transaction import PostgresTransaction
from penstock.store.rows import Row

_OWNED = load("owned")
_LOG_END = load("log_end")
_APPEND_LOG = load("append_log")
_READ_LOG = load("read_log")


async def append_log(
    tx: PostgresTransaction, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None
) -> bool:
    """False, and nothing kept, when the fence is lost."""
    owned = await query(tx.connection, _OWNED, {"id": lease.job, "fence": lease.fence})
    if not owned:
        return False
    ((seq,),) = owned
    last = await query(tx.connection, _LOG_END, {"seq": seq, "fence": lease.fence})
    end = LogEnd(*last[0]) if last else LogEnd()
    kept = [
        (position, to_millis(line.at), line.attempt, size, _kept_text(line.stream), _kept_text(line.text), number)
        for position, size, number, line in new_lines(end, lines, cap, first)
    ]
    if kept:
        await execute(tx.connection, _APPEND_LOG, _columns(seq, lease.fence, kept))
    return True


async def read_log(connection: Connection, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
    rows = await query(connection, _READ_LOG, {"job": job, "after": after, "limit": limit})
    lines = [LogLine(from_millis(at), stream, text, attempt) for _, at, stream, text, attempt in rows]
    return lines, rows[-1][0] if rows else after


def _kept_text(text: str) -> str:
    """PostgreSQL's text holds every character but one."""
    return text.replace("\0", "␀")


def _columns(seq: int, fence: int, kept: Sequence[Row]) -> dict[str, object]:
    positions, ats, attempts, sizes, streams, written, numbers = zip(*kept, strict=True)
    return {
        "seq": seq,
        "fence": fence,
        "positions": bigints(positions),
        "ats": bigints(ats),
        "attempts": bigints(attempts),
        "sizes": bigints(sizes),
        "streams": texts(streams),
        "texts": texts(written),
        "numbers": bigints(numbers),
    }
