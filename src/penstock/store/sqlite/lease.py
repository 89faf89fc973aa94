"""The moves of a lease: claimed, renewed, released by its owner, reclaimed from one that was lost."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import apsw
from msgspec import Raw, json

from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.job import JSON_NULL, Claim, Lease, Loss, Renewal, Settled, Ticket
from penstock.model.lifecycle import POISON_LOSSES, Event, Move, State
from penstock.model.timing import millis
from penstock.store.batching import in_rounds
from penstock.store.rows import Row, files_of, object_of, tags_of, text_of
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.transaction import Transaction

_CLAIM = Bulk("claim")
_CLAIM_NEXT = load("claim_next")
_RENEW = Bulk("renew")
_RELEASE = Bulk("release")
_RECLAIM = load("reclaim")
_FENCES = load("fences")

Wanted = tuple[Ticket, str, timedelta]
Held = tuple[Lease, timedelta]
GivenBack = tuple[Lease, bool]


def claim(tx: Transaction, wanted: Sequence[Wanted]) -> list[Claim | None]:
    """One answer each, in order; None for a job that is no longer there to be claimed."""
    return in_rounds(wanted, lambda one: one[0].job, partial(_claim, tx))


def _claim(tx: Transaction, wanted: Sequence[Wanted]) -> list[Claim | None]:
    rows = [(to_bytes(ticket.job), worker, tx.now + millis(lease), tx.now) for ticket, worker, lease in wanted]
    claimed = {row[0]: row for row in _CLAIM.run(tx.connection, rows)}
    answers = [
        _claim_of(ticket.job, claimed[raw_id], lease) if raw_id in claimed else None
        for (raw_id, *_), (ticket, _, lease) in zip(rows, wanted, strict=True)
    ]
    tx.record(_claimed(one, tx.at) for one in answers if one is not None)
    return answers


def claim_next(
    tx: Transaction, room: Mapping[str, int], types: Collection[str], worker: str, lease: timedelta
) -> list[Claim]:
    """Within each queue: highest priority first, then oldest first."""
    chosen = json.encode(list(types)).decode()
    claims = [
        _claim_of(from_bytes(raw_id), (raw_id, *row), lease)
        for queue, free in room.items()
        for raw_id, *row, _, _ in _next(tx, queue, free, chosen, worker, lease)
    ]
    tx.record(_claimed(one, tx.at) for one in claims)
    return claims


def _next(tx: Transaction, queue: str, room: int, types: str, worker: str, lease: timedelta) -> list[Row]:
    if room <= 0:
        return []
    scope = {
        "queue": queue,
        "room": room,
        "types": types,
        "worker": worker,
        "lease_until": tx.now + millis(lease),
        "now": tx.now,
    }
    return sorted(query(tx.connection, _CLAIM_NEXT, scope), key=lambda row: (-row[-2], row[-1]))


def _claimed(one: Claim, at: datetime) -> Event:
    return Event(one.job, one.type, one.queue, Move.CLAIM, State.QUEUED, State.RUNNING, at, one.fence, one.attempt)


def _claim_of(job: JobId, row: Row, lease: timedelta) -> Claim:
    _, type_name, queue, fence, attempt, params, params_object, timeout, inputs, tags, alone = row
    return Claim(
        job=job,
        type=type_name,
        queue=queue,
        attempt=attempt,
        fence=fence,
        params=Raw(JSON_NULL if params is None else params),
        params_object=object_of(params_object),
        timeout_seconds=None if timeout is None else timeout / 1000,
        lease_seconds=lease.total_seconds(),
        inputs=files_of(inputs),
        tags=tags_of(tags),
        alone=bool(alone),
    )


def renew(tx: Transaction, held: Sequence[Held]) -> list[Renewal]:
    """One answer each, in order."""
    return in_rounds(held, lambda one: one[0].job, partial(_renew, tx))


def _renew(tx: Transaction, held: Sequence[Held]) -> list[Renewal]:
    rows = [(to_bytes(lease.job), lease.fence, tx.now + millis(span), text_of(lease.progress)) for lease, span in held]
    marks: dict[bytes, int | None] = dict(_RENEW.run(tx.connection, rows))
    losses = losses_of(tx, [row[:2] for row in rows if row[0] not in marks])
    return [
        Renewal(lease.job, lease.fence, losses.get(row[0]), marks.get(row[0]) is not None)
        for row, (lease, _) in zip(rows, held, strict=True)
    ]


def release(tx: Transaction, given_back: Sequence[GivenBack]) -> list[Settled]:
    """One answer each, in order."""
    return in_rounds(given_back, lambda one: one[0].job, partial(_release, tx))


def _release(tx: Transaction, given_back: Sequence[GivenBack]) -> list[Settled]:
    rows = [(to_bytes(lease.job), lease.fence, int(suspect), tx.now) for lease, suspect in given_back]
    jobs = {row[0]: lease.job for row, (lease, _) in zip(rows, given_back, strict=True)}
    moved = {
        row[0]: tx.event(jobs[row[0]], row, Move.RELEASE, State.RUNNING) for row in _RELEASE.run(tx.connection, rows)
    }
    tx.record(moved.values())
    losses = losses_of(tx, [row[:2] for row in rows if row[0] not in moved])
    return [
        Settled(lease.job, lease.fence, moved.get(row[0]), losses.get(row[0]))
        for row, (lease, _) in zip(rows, given_back, strict=True)
    ]


def reclaim(tx: Transaction, limit: int) -> list[Event]:
    """Those whose lease ran out first."""
    scope = {"now": tx.now, "limit": limit, "poison_losses": POISON_LOSSES}
    rows = query(tx.connection, _RECLAIM, scope)
    events = [tx.event(from_bytes(row[0]), row, Move.RECLAIM, State.RUNNING) for row in rows]
    tx.record(events)
    return events


def losses_of(tx: Transaction, refused: Sequence[Row]) -> dict[bytes, Loss]:
    """Why each (id, fence) was refused.

    A job that still has the fence shown but is not running was settled or released under it: every other way out of
    running raises the fence.
    """
    if not refused:
        return {}
    ids = apsw.carray(tuple(raw_id for raw_id, _ in refused))
    fences: dict[bytes, int] = dict(query(tx.connection, _FENCES, {"ids": ids}))
    return {raw_id: _loss(fences.get(raw_id), shown) for raw_id, shown in refused}


def _loss(fence: int | None, shown: int) -> Loss:
    if fence is None:
        return Loss.GONE
    return Loss.MINE_ALREADY if fence == shown else Loss.LOST
