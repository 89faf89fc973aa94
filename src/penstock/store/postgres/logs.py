"""What jobs have written: appended under their fence while below a cap, read by position."""

from collections.abc import Iterator, Sequence

from penstock.model.ids import JobId
from penstock.model.job import Lease, LogLine
from penstock.model.timing import from_millis, to_millis
from penstock.store.postgres.arrays import bigints, texts
from penstock.store.postgres.statements import Connection, execute, load, query
from penstock.store.postgres.transaction import Transaction
from penstock.store.rows import Row

_OWNED = load("owned")
_LOG_END = load("log_end")
_APPEND_LOG = load("append_log")
_READ_LOG = load("read_log")


async def append_log(tx: Transaction, lease: Lease, lines: Sequence[LogLine], cap: int) -> bool:
    """False, and nothing kept, when the fence is lost."""
    owned = await query(tx.connection, _OWNED, {"id": lease.job, "fence": lease.fence})
    if not owned:
        return False
    ((seq,),) = owned
    end = await query(tx.connection, _LOG_END, {"seq": seq})
    kept = list(_kept(end[0] if end else (0, 0), lines, cap))
    if kept:
        await execute(tx.connection, _APPEND_LOG, _columns(seq, kept))
    return True


async def read_log(connection: Connection, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
    rows = await query(connection, _READ_LOG, {"job": job, "after": after, "limit": limit})
    lines = [LogLine(from_millis(at), stream, text, attempt) for _, at, stream, text, attempt in rows]
    return lines, rows[-1][0] if rows else after


def _kept(end: Row, lines: Sequence[LogLine], cap: int) -> Iterator[Row]:
    position, size = end
    for line in lines:
        if size >= cap:
            return
        position += 1
        size += len(line.text.encode())
        yield position, to_millis(line.at), line.attempt, size, _kept_text(line.stream), _kept_text(line.text)


def _kept_text(text: str) -> str:
    """PostgreSQL's text holds every character but one."""
    return text.replace("\0", "␀")


def _columns(seq: int, kept: Sequence[Row]) -> dict[str, object]:
    positions, ats, attempts, sizes, streams, written = zip(*kept, strict=True)
    return {
        "seq": seq,
        "positions": bigints(positions),
        "ats": bigints(ats),
        "attempts": bigints(attempts),
        "sizes": bigints(sizes),
        "streams": texts(streams),
        "texts": texts(written),
    }
