"""The settle move: an attempt's outcome, written only under the fence of the newest claim."""

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from msgspec.structs import replace

from penstock.model.ids import JobId
from penstock.model.job import Settled, Settlement
from penstock.model.lifecycle import Event, Move, State
from penstock.model.timing import millis
from penstock.store.batching import run_rounds
from penstock.store.postgres import arrays
from penstock.store.postgres.lease import answers_to, held_by, moved_by
from penstock.store.postgres.statements import load, query
from penstock.store.postgres.transaction import Session
from penstock.store.rows import text_of

_SETTLE = load("settle")
_SETTLE_LATER = load("settle_later")
_JOB = attrgetter("job")


async def settle(session: Session, settlements: Sequence[Settlement]) -> list[Settled]:
    """One answer each, in order."""
    return await run_rounds(settlements, _JOB, partial(_settle, session))


async def _settle(session: Session, settlements: Sequence[Settlement]) -> list[Settled]:
    rows = sorted(settlements, key=_JOB)
    if State.SCHEDULED in {one.state for one in rows}:
        # In one transaction: a fault in the second statement must not leave the answers of the first untold.
        async with session.connection.transaction():
            moved = await _settle_mixed(session, rows)
    else:
        moved = await _end(session, rows)
    return await answers_to(session, settlements, moved)


async def _settle_mixed(session: Session, rows: Sequence[Settlement]) -> dict[JobId, Event]:
    """Those to be tried again first. One that is not moved has lost its fence or is marked; marks do not go away."""
    later = [one for one in rows if one.state is State.SCHEDULED]
    moved = await _put_off(session, later)
    rest = [_cancelled(one) if one.state is State.SCHEDULED else one for one in rows if one.job not in moved]
    return moved | await _end(session, rest) if rest else moved


def _cancelled(one: Settlement) -> Settlement:
    return replace(one, state=State.CANCELLED, reason="cancel requested")


async def _put_off(session: Session, rows: Sequence[Settlement]) -> dict[JobId, Event]:
    scope = held_by(rows) | _columns(rows) | {"now": session.test_now}
    return moved_by(rows, await query(session.connection, _SETTLE_LATER, scope), Move.SETTLE)


async def _end(session: Session, rows: Sequence[Settlement]) -> dict[JobId, Event]:
    kept = {
        "now": session.test_now,
        "states": arrays.texts([one.state for one in rows]),
        "results": arrays.byteas([one.result for one in rows]),
        "objects": _structured([one.result_object for one in rows]),
        "outputs": _structured([one.outputs for one in rows]),
    }
    scope = held_by(rows) | _columns(rows) | kept
    return moved_by(rows, await query(session.connection, _SETTLE, scope), Move.SETTLE)


def _columns(rows: Sequence[Settlement]) -> dict[str, object]:
    return {
        "retries": arrays.bigints([None if one.retry_in is None else millis(one.retry_in) for one in rows]),
        "losses": arrays.booleans([one.loss for one in rows]),
        "reasons": arrays.texts([one.reason for one in rows]),
        "errors": _structured([one.error for one in rows]),
        "owning": arrays.booleans([bool(one.result_object or one.outputs) for one in rows]),
    }


def _structured(values: Sequence[object]) -> arrays.Texts:
    return arrays.texts([text_of(value) for value in values] if any(values) else [None])
