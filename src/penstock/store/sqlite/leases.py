"""The moves of a lease: claim, renew, settle, release, and reclaim from a lost owner; cancel and expire."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from heapq import heapify, heappop, heappush

import apsw
from msgspec import Raw

from penstock.model.clock import millis
from penstock.model.ids import JobId, from_bytes, to_bytes
from penstock.model.job import JSON_NULL, Cancellation, Claim, Lease, Loss, Renewal, Settled, Settlement, Ticket
from penstock.model.lifecycle import POISON_LOSSES, SUSPECT_LOSSES, Event, Move, State
from penstock.store.rounds import in_rounds
from penstock.store.rows import Row, files_of, object_of, tags_of, text_of
from penstock.store.seam import Share
from penstock.store.sqlite.entries import SPAN
from penstock.store.sqlite.queries import jobs_by_id, seqs_of
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.transaction import SqliteTransaction

_CLAIM = Bulk("claim")
_CLAIM_NEXT = load("claim_next")
_NEXT_IN_LINE = load("next_in_line")
_RENEW = Bulk("renew")
_RELEASE = Bulk("release")
_RECLAIM = load("reclaim")
_RETYPE, _TYPE_OF = load("retype"), load("type_of")
_FENCES = load("fences")

Wanted = tuple[Ticket, str, timedelta]
Held = tuple[Lease, timedelta]
GivenBack = tuple[Lease, bool, timedelta | None]
Head = tuple[int, int, str]
"""The first job of a type, ordered by urgency: its priority negated, its seq, and the type."""


def claim(tx: SqliteTransaction, wanted: Sequence[Wanted]) -> list[Claim | None]:
    """One answer each, in order; None for a job that can no longer be claimed."""
    return in_rounds(wanted, lambda one: one[0].job, partial(_claim, tx))


def _claim(tx: SqliteTransaction, wanted: Sequence[Wanted]) -> list[Claim | None]:
    rows = [(to_bytes(ticket.job), worker, tx.now + millis(lease), tx.now) for ticket, worker, lease in wanted]
    claimed = {row[0]: row for row in _CLAIM.run(tx.connection, rows)}
    answers = [
        _claim_of(ticket.job, claimed[raw_id], lease) if raw_id in claimed else None
        for (raw_id, *_), (ticket, _, lease) in zip(rows, wanted, strict=True)
    ]
    tx.record_rows(Move.CLAIM, State.QUEUED, list(claimed.values()), timed=True)
    return answers


def claim_next(tx: SqliteTransaction, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
    """Within each queue: highest priority first, then oldest first."""
    held = {"worker": worker, "lease_until": tx.now + millis(lease), "now": tx.now}
    rows = [row for share in asked for row in sorted(_next(tx, share, held), key=lambda row: (-row[-2], row[-1]))]
    tx.record_rows(Move.CLAIM, State.QUEUED, rows, timed=True)
    return [_claim_of(from_bytes(row[0]), row[:-1], lease) for row in rows]


def _next(tx: SqliteTransaction, share: Share, held: Mapping[str, object]) -> list[Row]:
    """The next jobs of a queue, merged from its types: each gives jobs as urgent as the first job of any other."""
    heads = _heads(tx, share)
    rows: list[Row] = []
    while heads and (room := share.jobs - len(rows)) > 0:
        _, _, type_name = heappop(heads)
        least = -heads[0][0] if heads else 0
        scope = {**held, "queue": share.queue, "type": type_name, "least": least, "room": room}
        given = query(tx.connection, _CLAIM_NEXT, scope)
        rows += given
        if heads and len(given) < room and (head := _head(tx, share.queue, type_name)) is not None:
            heappush(heads, head)
    return rows


def _heads(tx: SqliteTransaction, share: Share) -> list[Head]:
    """The first job of each type, as a heap. A single type needs no query."""
    if len(share.types) <= 1:
        return [(0, 0, type_name) for type_name in share.types]
    heads = [head for type_name in share.types if (head := _head(tx, share.queue, type_name)) is not None]
    heapify(heads)
    return heads


def _head(tx: SqliteTransaction, queue: str, type_name: str) -> Head | None:
    rows = query(tx.connection, _NEXT_IN_LINE, {"queue": queue, "type": type_name, "now": tx.now})
    return next(((-priority, seq, type_name) for priority, seq in rows), None)


def _claim_of(job: JobId, row: Row, lease: timedelta) -> Claim:
    (
        _, type_name, queue, _, fence, attempt, _, _, waited, params, params_object, timeout, inputs, tags, alone,
        alone_in_worker, priority,
    ) = row  # fmt: skip
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
        alone_in_worker=bool(alone_in_worker),
        priority=priority,
        waited_seconds=waited / 1000,
    )


def renew(tx: SqliteTransaction, held: Sequence[Held]) -> list[Renewal]:
    """One answer each, in order."""
    return in_rounds(held, lambda one: one[0].job, partial(_renew, tx))


def _renew(tx: SqliteTransaction, held: Sequence[Held]) -> list[Renewal]:
    rows = [
        (to_bytes(lease.job), lease.fence, tx.now + millis(span), text_of(lease.progress), int(lease.begun))
        for lease, span in held
    ]
    marks: dict[bytes, int | None] = dict(_RENEW.run(tx.connection, rows))
    losses = losses_of(tx, [row[:2] for row in rows if row[0] not in marks])
    return [
        Renewal(lease.job, lease.fence, losses.get(row[0]), marks.get(row[0]) is not None)
        for row, (lease, _) in zip(rows, held, strict=True)
    ]


def release(tx: SqliteTransaction, given_back: Sequence[GivenBack]) -> list[Settled]:
    """One answer each, in order."""
    return in_rounds(given_back, lambda one: one[0].job, partial(_release, tx))


def _release(tx: SqliteTransaction, given_back: Sequence[GivenBack]) -> list[Settled]:
    rows = [
        (to_bytes(lease.job), lease.fence, int(suspect), tx.now, None if delay is None else tx.now + millis(delay))
        for lease, suspect, delay in given_back
    ]
    jobs = {row[0]: lease.job for row, (lease, *_) in zip(rows, given_back, strict=True)}
    moved = {
        row[0]: tx.event(jobs[row[0]], row, Move.RELEASE, State.RUNNING) for row in _RELEASE.run(tx.connection, rows)
    }
    tx.record(moved.values())
    losses = losses_of(tx, [row[:2] for row in rows if row[0] not in moved])
    return [
        Settled(lease.job, lease.fence, moved.get(row[0]), losses.get(row[0]))
        for row, (lease, *_) in zip(rows, given_back, strict=True)
    ]


def retype(tx: SqliteTransaction, leases: Sequence[Lease], type_name: str) -> None:
    retyped: Counter[tuple[str, str]] = Counter()
    for lease in leases:
        scope = {"id": to_bytes(lease.job), "fence": lease.fence, "type": type_name}
        before = query(tx.connection, _TYPE_OF, {"id": scope["id"]})
        retyped.update((queue, before[0][0]) for (queue,) in query(tx.connection, _RETYPE, scope))
    tx.record_retyped(retyped, type_name)


def reclaim(tx: SqliteTransaction, limit: int) -> list[Event]:
    """Reclaim the leases that ran out first."""
    scope = {"now": tx.now, "limit": limit, "poison": POISON_LOSSES, "suspect": SUSPECT_LOSSES}
    rows = query(tx.connection, _RECLAIM, scope)
    events = [tx.event(from_bytes(row[0]), row, Move.RECLAIM, State.RUNNING) for row in rows]
    tx.record(events)
    return events


def losses_of(tx: SqliteTransaction, refused: Sequence[Row]) -> dict[bytes, Loss]:
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


_SETTLE = Bulk("settle")


def settle(tx: SqliteTransaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """One answer each, in order."""
    return in_rounds(settlements, lambda one: one.job, partial(_settle, tx))


def _settle(tx: SqliteTransaction, settlements: Sequence[Settlement]) -> list[Settled]:
    rows = [_row_of(one, tx.now) for one in settlements]
    jobs = {row[0]: one.job for row, one in zip(rows, settlements, strict=True)}
    settled = list(_SETTLE.run(tx.connection, rows))
    tx.record_rows(Move.SETTLE, State.RUNNING, settled, timed=True)
    moved = {row[0]: tx.event(jobs[row[0]], row, Move.SETTLE, State.RUNNING, ran=row[SPAN]) for row in settled}
    losses = losses_of(tx, [row[:2] for row in rows if row[0] not in moved])
    return [
        Settled(one.job, one.fence, moved.get(row[0]), losses.get(row[0]))
        for row, one in zip(rows, settlements, strict=True)
    ]


def _row_of(one: Settlement, now: int) -> Row:
    return (
        to_bytes(one.job),
        one.fence,
        one.state,
        now,
        None if one.retry_in is None else now + millis(one.retry_in),
        int(one.loss),
        one.reason,
        text_of(one.error),
        one.result,
        text_of(one.result_object),
        text_of(one.outputs),
        int(bool(one.result_object or one.outputs)),
    )


_CANCEL = load("cancel")
_EXPIRABLE = load("expirable")
_EXPIRE = load("expire")


def cancel(tx: SqliteTransaction, jobs: Sequence[JobId], *, force: bool) -> list[Cancellation]:
    """One answer each, in order; of a job named twice the first answer has the event."""
    before = jobs_by_id(tx.connection, jobs)
    moved = _cancelled(tx, {job: found.state for job, found in before.items()}, force=force)
    after = jobs_by_id(tx.connection, list(moved))
    tx.record(moved.values())
    return [Cancellation(after.get(job) or before.get(job), moved.pop(job, None)) for job in jobs]


def yield_jobs(tx: SqliteTransaction, schedule: str, jobs: Sequence[JobId]) -> list[Event]:
    """Cancel the jobs that belong to the schedule, for its next one. The caller records the events."""
    before = jobs_by_id(tx.connection, jobs)
    own = {job: found.state for job, found in before.items() if found.schedule == schedule}
    return list(_cancelled(tx, own, force=False).values())


def _cancelled(tx: SqliteTransaction, before: dict[JobId, State], *, force: bool) -> dict[JobId, Event]:
    if not before:
        return {}
    scope = {"ids": apsw.carray(tuple(map(to_bytes, before))), "force": force, "now": tx.now}
    states = {to_bytes(job): state for job, state in before.items()}
    events = [
        tx.event(from_bytes(row[0]), row, Move.CANCEL, states[row[0]]) for row in query(tx.connection, _CANCEL, scope)
    ]
    return {event.job: event for event in events}


def expire(tx: SqliteTransaction, limit: int) -> list[Event]:
    """Expire the jobs whose time ran out first."""
    before: dict[int, str] = dict(query(tx.connection, _EXPIRABLE, {"now": tx.now, "limit": limit}))
    if not before:
        return []
    scope = {"seqs": seqs_of(before), "now": tx.now}
    events = [
        tx.event(from_bytes(row[0]), row, Move.EXPIRE, State(before[row[8]]))
        for row in query(tx.connection, _EXPIRE, scope)
    ]
    tx.record(events)
    return events
