"""What jobs have written: appended under their fence while below a cap, read by position."""

from collections.abc import Sequence

import apsw

from penstock.model.ids import JobId, to_bytes
from penstock.model.job import Lease, LogLine
from penstock.model.timing import from_millis, to_millis
from penstock.store.log_lines import LogEnd, new_lines
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.transaction import SqliteTransaction

_LOG_END = load("log_end")
_APPEND_LOG = Bulk("append_log")
_READ_LOG = load("read_log")


def append_log(tx: SqliteTransaction, lease: Lease, lines: Sequence[LogLine], cap: int, first: int | None) -> bool:
    """False, and nothing kept, when the fence is lost."""
    end = query(tx.connection, _LOG_END, {"id": to_bytes(lease.job), "fence": lease.fence})
    if not end:
        return False
    ((seq, *last),) = end
    rows = [
        (seq, position, to_millis(line.at), line.attempt, size, line.stream, line.text, lease.fence, number)
        for position, size, number, line in new_lines(LogEnd(*last), lines, cap, first)
    ]
    _APPEND_LOG.execute(tx.connection, rows)
    return True


def read_log(connection: apsw.Connection, job: JobId, after: int, limit: int) -> tuple[list[LogLine], int]:
    scope = {"id": to_bytes(job), "after": after, "limit": limit}
    rows = query(connection, _READ_LOG, scope)
    lines = [LogLine(from_millis(at), stream, text, attempt) for _, at, stream, text, attempt in rows]
    return lines, rows[-1][0] if rows else after
