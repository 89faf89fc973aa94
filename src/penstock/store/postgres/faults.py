"""Which of PostgreSQL's errors mean that the shard is unavailable, and what a caller is told."""

import re

import psycopg
from psycopg import errors

from penstock.model.errors import Invalid, StoreUnavailable
from penstock.store.postgres.address import PostgresAddress

FAULTS = (psycopg.IntegrityError, psycopg.DataError)
"""What breaks an invariant of the tables; the fault of what was to be kept."""

RETRIED = (errors.DeadlockDetected, errors.SerializationFailure)
"""The server undid it all by itself, and it may be done again."""

# libpq tells the SQLSTATE of no connection that failed, so there are only words: the server's own and PgBouncer's.
_EXHAUSTED = re.compile(r"too many (?:clients|connections)|connection slots are reserved|no more connections allowed")


class HeldElsewhere(StoreUnavailable):
    """What is needed is in a transaction of somebody else, who does not end it; it concerns only who needs it."""


def unavailable(address: PostgresAddress, error: BaseException | str, *, sent: bool = True) -> StoreUnavailable:
    """What a caller is told about an outage: which database, and what was said; no password is in either.

    `sent`: the server may have been asked, and may have done it.
    """
    said = str(error).strip().replace("\n", " ") or type(error).__name__
    if isinstance(error, errors.LockNotAvailable):
        return HeldElsewhere(f"a transaction at {address.shown} holds what is needed: {said}; end it, then try again")
    return StoreUnavailable(
        f"the store at {address.shown} cannot be used now: {said}; check the server, then try again", sent=sent
    )


def is_exhausted(error: psycopg.OperationalError) -> bool:
    """Whether the server answered that it gives no more connections for now."""
    return _EXHAUSTED.search(str(error)) is not None


def is_stale(error: psycopg.Error) -> bool:
    """Whether `penstock.fenced_clock` refused a move, because the shard's epoch has to be raised first."""
    return error.sqlstate == "PSEPO"


def refused(error: Exception) -> Exception:
    """What the caller at fault is told: Invalid for what breaks an invariant of the tables, else the error itself."""
    if isinstance(error, FAULTS):
        return Invalid(f"the store cannot keep this: {error.diag.message_primary or error}")
    return error


def is_outage(error: BaseException) -> bool:
    """Whether it is of the server, its tables' absence or the network; every other error is the fault of one call."""
    if isinstance(error, psycopg.ProgrammingError):
        return error.sqlstate is not None
    return isinstance(error, psycopg.Error | OSError) and not isinstance(error, FAULTS)
