"""A job submitted within a transaction of the caller's own: on any connection to a PostgreSQL shard.

The work is done by the shard's own function `penstock.submit_request`. No driver is imported here: a connection,
session or cursor of psycopg, SQLAlchemy or Django is told by what it can do.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from penstock.model.errors import Invalid
from penstock.model.ids import JobId

_SUBMIT = "SELECT CAST(penstock.submit_request(CAST(CAST({place} AS text) AS jsonb)) AS text) AS id"


def submit_request(connection: Any, request: str) -> JobId:
    """Run the function with a `SubmitRequest` as JSON; the job is there once the caller commits."""
    if _is_session(connection):
        connection = _at_once(connection.connection())
    executed = _at_once(_execute(connection, request))
    return _id_of((connection if executed is None else executed).fetchone())


async def submit_request_async(connection: Any, request: str) -> JobId:
    """The same on a connection whose calls are awaited; one whose calls are not is taken too, and blocks."""
    if _is_session(connection):
        connection = await _await(connection.connection())
    executed = await _await(_execute(connection, request))
    return _id_of(await _await((connection if executed is None else executed).fetchone()))


def _is_session(connection: Any) -> bool:
    """A session can be asked for its connection; a cursor has one too, but it is no method."""
    return not hasattr(connection, "exec_driver_sql") and callable(getattr(connection, "connection", None))


def _execute(connection: Any, request: str) -> Any:
    """What the driver gives back: a cursor, something to await for one, or nothing when the cursor was called."""
    if hasattr(connection, "exec_driver_sql"):
        numbered = connection.dialect.paramstyle == "numeric_dollar"
        return connection.exec_driver_sql(_SUBMIT.format(place="$1" if numbered else "%s"), (request,))
    if hasattr(connection, "execute"):
        return connection.execute(_SUBMIT.format(place="%s"), (request,))
    raise Invalid(f"{type(connection).__name__} runs no SQL: pass a connection, a session or a cursor")


async def _await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _at_once(value: Any) -> Any:
    """What is not to be awaited; of what is, nothing has been sent yet."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise Invalid("the connection is an asynchronous one: use `await app.submit_in_async(…)`")
    return value


def _id_of(row: Any) -> JobId:
    """From a row, however the connection makes rows."""
    match row:
        case str():
            return JobId(row)
        case Mapping():
            return JobId(row["id"])
        case _:
            return JobId(row[0])
