"""The moves of a lease: claim, renew, settle, release, cancel, and reclaim from a lost worker."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import accumulate
from operator import attrgetter

from msgspec import Raw
from msgspec.structs import replace

from penstock.model.clock import millis
from penstock.model.ids import JobId
from penstock.model.job import JSON_NULL, Cancellation, Claim, Lease, Loss, Renewal, Settled, Settlement, Ticket
from penstock.model.lifecycle import POISON_LOSSES, SUSPECT_LOSSES, Event, Move, State
from penstock.store.postgres import arrays
from penstock.store.postgres.queries import jobs_by_id
from penstock.store.postgres.statements import Session, event_of, load, query
from penstock.store.rounds import run_rounds
from penstock.store.rows import Row, files_of, object_of, tags_of, text_of
from penstock.store.seam import Share

_CLAIM = load("claim")
_CLAIM_NEXT = load("claim_next")
_CLAIM_MERGED = load("claim_merged")
_RENEW = load("renew")
_RELEASE = load("release")
_RELEASE_MARKED = load("release_marked")
_RECLAIM = load("reclaim")
_RETYPE = load("retype")
_FENCES = load("fences")

Wanted = tuple[Ticket, str, int]
Held = tuple[Lease, timedelta]
GivenBack = tuple[Lease, bool, timedelta | None]
Shown = Lease | Settlement


async def claim(session: Session, wanted: Sequence[Wanted]) -> list[Claim | None]:
    """One answer each, in order; None for a job that is no longer there to be claimed."""
    return await run_rounds(wanted, lambda one: one[0].job, partial(_claim, session))


async def _claim(session: Session, wanted: Sequence[Wanted]) -> list[Claim | None]:
    jobs = [ticket.job for ticket, _, _ in wanted]
    order = sorted(range(len(wanted)), key=jobs.__getitem__)
    rows = [wanted[position] for position in order]
    scope = session.scope | {
        "ids": arrays.uuids([ticket.job for ticket, _, _ in rows]),
        "workers": arrays.texts([worker for _, worker, _ in rows]),
        "leases": arrays.bigints([lease for _, _, lease in rows]),
    }
    answers: list[Claim | None] = [None] * len(wanted)
    for row in await query(session.connection, _CLAIM, scope):
        position = order[row[0] - 1]
        ticket, _, lease = wanted[position]
        answers[position] = _claim_of(ticket.job, row, lease)
    return answers


async def claim_next(session: Session, asked: Sequence[Share], worker: str, lease: timedelta) -> list[Claim]:
    """Within each queue: highest priority first, then oldest first."""
    shares = [share for share in asked if share.jobs > 0 and share.types]
    if not shares:
        return []
    span = millis(lease)
    scope = session.scope | {
        "queues": arrays.texts([share.queue for share in shares]),
        "jobs": arrays.bigints([share.jobs for share in shares]),
        "types": arrays.texts([type_name for share in shares for type_name in share.types]),
        "worker": worker,
        "lease": span,
    }
    # With one share there is nothing to merge, and the simpler statement takes a sixth less time.
    merged = any(len(share.types) > 1 for share in shares)
    statement, scope = (_CLAIM_MERGED, scope | _places(shares)) if merged else (_CLAIM_NEXT, scope)
    rows = await query(session.connection, statement, scope)
    return [_claim_of(row[0], row, span) for row in rows]


def _places(shares: Sequence[Share]) -> dict[str, object]:
    """The first and last position of each share's types in the concatenated array, counted from 1."""
    ends = list(accumulate(len(share.types) for share in shares))
    return {"starts": arrays.bigints([1, *(end + 1 for end in ends[:-1])]), "ends": arrays.bigints(ends)}


def _claim_of(job: JobId, row: Row, lease: int) -> Claim:
    (
        _, type_name, queue, fence, attempt, params, params_object, timeout, inputs, tags, alone, alone_in_worker,
        priority, waited,
    ) = row  # fmt: skip
    return Claim(
        job=job,
        type=type_name,
        queue=queue,
        attempt=attempt,
        fence=fence,
        params=Raw(JSON_NULL if params is None else params),
        params_object=None if params_object is None else object_of(params_object),
        timeout_seconds=None if timeout is None else timeout / 1000,
        lease_seconds=lease / 1000,
        inputs=() if inputs is None else files_of(inputs),
        tags=() if tags is None else tags_of(tags),
        alone=alone,
        alone_in_worker=alone_in_worker,
        priority=priority,
        waited_seconds=waited / 1000 if waited > 0 else 0.0,
    )


async def renew(session: Session, held: Sequence[Held]) -> list[Renewal]:
    """One answer each, in order."""
    return await run_rounds(held, lambda one: one[0].job, partial(_renew, session))


async def _renew(session: Session, held: Sequence[Held]) -> list[Renewal]:
    rows = sorted(held, key=lambda one: one[0].job)
    scope = {
        "now": session.test_now,
        "ids": arrays.uuids([lease.job for lease, _ in rows]),
        "fences": arrays.bigints([lease.fence for lease, _ in rows]),
        "leases": arrays.bigints([millis(span) for _, span in rows]),
        "progress": arrays.texts([text_of(lease.progress) for lease, _ in rows]),
        "begun": arrays.booleans([lease.begun for lease, _ in rows]),
    }
    marks = {rows[n - 1][0].job: mark for n, mark in await query(session.connection, _RENEW, scope)}
    losses = await losses_of(session, [lease for lease, _ in held if lease.job not in marks])
    return [
        Renewal(lease.job, lease.fence, losses.get(lease.job), marks.get(lease.job) is not None) for lease, _ in held
    ]


async def release(session: Session, given_back: Sequence[GivenBack]) -> list[Settled]:
    """One answer each, in order."""
    return await run_rounds(given_back, lambda one: one[0].job, partial(_release, session))


async def _release(session: Session, given_back: Sequence[GivenBack]) -> list[Settled]:
    rows = sorted(given_back, key=lambda one: one[0].job)
    leases = [lease for lease, *_ in rows]
    scope = (
        session.scope
        | held_by(leases)
        | {
            "suspects": arrays.booleans([suspect for _, suspect, _ in rows]),
            "delays": arrays.bigints([None if delay is None else millis(delay) for *_, delay in rows]),
        }
    )
    moved = moved_by(leases, await query(session.connection, _RELEASE, scope), Move.RELEASE)
    if rest := [lease for lease in leases if lease.job not in moved]:
        scope = session.scope | held_by(rest)
        moved |= moved_by(rest, await query(session.connection, _RELEASE_MARKED, scope), Move.RELEASE)
    return await answers_to(session, [lease for lease, *_ in given_back], moved)


async def retype(session: Session, leases: Sequence[Lease], type_name: str) -> None:
    rows = sorted(leases, key=lambda lease: lease.job)
    await query(session.connection, _RETYPE, session.scope | held_by(rows) | {"type": type_name})


async def reclaim(session: Session, limit: int) -> list[Event]:
    """Those whose lease ran out first."""
    scope = session.scope | {"limit": limit, "poison": POISON_LOSSES, "suspect": SUSPECT_LOSSES}
    rows = await query(session.connection, _RECLAIM, scope)
    return [event_of(row[0], row, Move.RECLAIM, State.RUNNING) for row in rows]


def held_by(shown: Sequence[Shown]) -> dict[str, object]:
    """Ids and fences of the leases, as parameters of a statement."""
    return {
        "ids": arrays.uuids([one.job for one in shown]),
        "fences": arrays.bigints([one.fence for one in shown]),
    }


def moved_by(shown: Sequence[Shown], rows: Sequence[Row], move: Move) -> dict[JobId, Event]:
    """The events of rows whose first column is the lease's position, from 1; a tenth is how long the attempt ran."""
    jobs = [shown[row[0] - 1].job for row in rows]
    before = State.RUNNING
    return {
        job: event_of(job, row, move, before, ran=row[9] if len(row) > 9 else None)
        for job, row in zip(jobs, rows, strict=True)
    }


async def answers_to(session: Session, shown: Sequence[Shown], moved: Mapping[JobId, Event]) -> list[Settled]:
    """One answer each, in order: the event, or the reason why there is none."""
    losses = await losses_of(session, [one for one in shown if one.job not in moved])
    return [Settled(one.job, one.fence, moved.get(one.job), losses.get(one.job)) for one in shown]


async def losses_of(session: Session, refused: Sequence[Shown]) -> dict[JobId, Loss]:
    """Why each was refused.

    A job that still has the fence shown but is not running was settled or released under it: every other way out of
    running raises the fence.
    """
    if not refused:
        return {}
    sought = arrays.id_range([one.job for one in refused])
    fences: dict[JobId, int] = dict(await query(session.connection, _FENCES, sought))
    return {one.job: _loss(fences.get(one.job), one.fence) for one in refused}


def _loss(fence: int | None, shown: int) -> Loss:
    if fence is None:
        return Loss.GONE
    return Loss.MINE_ALREADY if fence == shown else Loss.LOST


_SETTLE = load("settle")
_SETTLE_LATER = load("settle_later")
_JOB = attrgetter("job")


async def settle(session: Session, settlements: Sequence[Settlement]) -> list[Settled]:
    """One answer each, in order."""
    return await run_rounds(settlements, _JOB, partial(_settle, session))


async def _settle(session: Session, settlements: Sequence[Settlement]) -> list[Settled]:
    rows = sorted(settlements, key=_JOB)
    if State.SCHEDULED in {one.state for one in rows}:
        # In one transaction: if the second statement failed, the answers of the first would be lost.
        async with session.connection.transaction():
            moved = await _settle_mixed(session, rows)
    else:
        moved = await _end(session, rows)
    return await answers_to(session, settlements, moved)


async def _settle_mixed(session: Session, rows: Sequence[Settlement]) -> dict[JobId, Event]:
    """Settle the retries first. A job that this does not move has lost its fence, or has a cancel mark, which stays."""
    later = [one for one in rows if one.state is State.SCHEDULED]
    moved = await _put_off(session, later)
    rest = [_cancelled(one) if one.state is State.SCHEDULED else one for one in rows if one.job not in moved]
    return moved | await _end(session, rest) if rest else moved


def _cancelled(one: Settlement) -> Settlement:
    return replace(one, state=State.CANCELLED, reason="cancel requested")


async def _put_off(session: Session, rows: Sequence[Settlement]) -> dict[JobId, Event]:
    scope = session.scope | held_by(rows) | _columns(rows)
    return moved_by(rows, await query(session.connection, _SETTLE_LATER, scope), Move.SETTLE)


async def _end(session: Session, rows: Sequence[Settlement]) -> dict[JobId, Event]:
    kept = {
        "states": arrays.texts([one.state for one in rows]),
        "results": arrays.byteas([one.result for one in rows]),
        "objects": _structured([one.result_object for one in rows]),
        "outputs": _structured([one.outputs for one in rows]),
        "reasoned": any([one.reason is not None for one in rows]),
    }
    scope = session.scope | held_by(rows) | _columns(rows) | kept
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


_CANCEL = load("cancel")
_EXPIRE = load("expire")


async def cancel(session: Session, jobs: Sequence[JobId], *, force: bool) -> list[Cancellation]:
    """One answer each, in order; of a job named twice the first answer has the event. The jobs are as they are now."""
    scope = session.scope | {"ids": arrays.uuids(sorted(set(jobs))), "force": force}
    rows = await query(session.connection, _CANCEL, scope)
    moved = {row[0]: event_of(row[0], row, Move.CANCEL, State(row[9])) for row in rows}
    after = await jobs_by_id(session.connection, jobs)
    return [Cancellation(after.get(job), moved.pop(job, None)) for job in jobs]


async def yield_jobs(session: Session, schedule: str, jobs: Sequence[JobId]) -> list[Event]:
    """Cancel those of the jobs that are the schedule's own, to make room."""
    found = await jobs_by_id(session.connection, jobs)
    own = [job for job, one in found.items() if one.schedule == schedule]
    cancelled = await cancel(session, own, force=False) if own else []
    return [one.event for one in cancelled if one.event is not None]


async def expire(session: Session, limit: int) -> list[Event]:
    """Those that expired first."""
    rows = await query(session.connection, _EXPIRE, session.scope | {"limit": limit})
    return [event_of(row[0], row, Move.EXPIRE, State(row[9])) for row in rows]
