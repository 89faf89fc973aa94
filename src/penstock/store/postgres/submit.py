"""The submit move: insert new jobs, or find the ones that their keys already have."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from penstock.model.ids import JobId
from penstock.model.job import Job, NewJob, Submission
from penstock.model.lifecycle import Event, Move
from penstock.model.timing import millis
from penstock.store.postgres import arrays
from penstock.store.postgres.reads import jobs_by_id
from penstock.store.postgres.statements import load, query
from penstock.store.postgres.transaction import Session
from penstock.store.rows import optional_millis, retry_of, submitted, text_of

_SUBMIT = load("submit")
_SUBMIT_KEYED = load("submit_keyed")
_KEYS = load("keys")

Entry = tuple[NewJob, timedelta]


async def submit(session: Session, entries: Sequence[Entry]) -> list[Submission]:
    """One answer each, in order. A job whose id or key is there already is given back as it is."""
    return await _inserted(session, entries, Move.SUBMIT, counted=True)


async def insert(session: Session, entries: Sequence[Entry], move: Move) -> list[Submission]:
    """What `submit` does, for any move that makes jobs; recording the events is left to the caller."""
    return await _inserted(session, entries, move, counted=False)


async def _inserted(session: Session, entries: Sequence[Entry], move: Move, *, counted: bool) -> list[Submission]:
    jobs = [new for new, _ in entries]
    keyed = any(new.key is not None for new in jobs)
    scope = _columns(entries) | {"now": session.given, "asked": len(jobs), "counted": counted}
    if keyed:
        scope |= _keys(jobs)
    ((now, complete, fresh),) = await query(session.connection, _SUBMIT_KEYED if keyed else _SUBMIT, scope)
    if complete:
        return [_new(new, now, move) for new in jobs]
    return await _sorted_out(session, jobs, set(fresh or ()), now, move)


def _columns(entries: Sequence[Entry]) -> dict[str, Any]:
    jobs = [new for new, _ in entries]
    return {
        **arrays.sought([new.id for new in jobs]),
        "types": arrays.texts([new.type for new in jobs]),
        "queues": arrays.texts([new.queue for new in jobs]),
        "priorities": arrays.bigints([new.priority for new in jobs]),
        "due": arrays.bigints([optional_millis(new.due_at) for new in jobs]),
        "delays": arrays.bigints([None if new.delay is None else millis(new.delay) for new in jobs]),
        "expires": arrays.bigints([optional_millis(new.expires_at) for new in jobs]),
        "tickets": arrays.bigints([millis(ticket_for) if new.ticketed else None for new, ticket_for in entries]),
        "timeouts": arrays.bigints([None if new.timeout is None else millis(new.timeout) for new in jobs]),
        "owning": arrays.booleans([bool(new.params_object or new.inputs) for new in jobs]),
        "retried": arrays.optional_uuids([new.retry_of for new in jobs]),
        "retries": arrays.texts([retry_of(new.retry) for new in jobs]),
        "tags": arrays.texts([text_of(new.tags) for new in jobs]),
        "inputs": arrays.texts([text_of(new.inputs) for new in jobs]),
        "objects": arrays.texts([text_of(new.params_object) for new in jobs]),
        "params": arrays.byteas([new.params for new in jobs]),
        "schedules": arrays.texts([new.schedule for new in jobs]),
        "ticks": arrays.bigints([optional_millis(new.tick_at) for new in jobs]),
        "intervals": arrays.bigints([None if new.interval is None else millis(new.interval) for new in jobs]),
    }


def _keys(jobs: Sequence[NewJob]) -> dict[str, Any]:
    return {
        "keys": arrays.texts([new.key for new in jobs]),
        "fingerprints": arrays.byteas([new.fingerprint for new in jobs]),
    }


def _new(new: NewJob, now: int, move: Move) -> Submission:
    job = submitted(new, now)
    return Submission(job, Event(job.id, job.type, job.queue, move, None, job.state, job.created_at, 0, 0))


async def _sorted_out(
    session: Session, jobs: Sequence[NewJob], fresh: set[JobId], now: int, move: Move
) -> list[Submission]:
    """Some were there already: read what each has met."""
    met = await _met(session, jobs)
    answers = []
    for new in jobs:
        if new.id in fresh:
            fresh.remove(new.id)
            answers.append(_new(new, now, move))
        else:
            answers.append(met.answer(new))
    return answers


async def _met(session: Session, jobs: Sequence[NewJob]) -> "_Met":
    keys = arrays.texts([new.key for new in jobs if new.key is not None])
    by_key = {
        key: (job, fingerprint) for key, job, fingerprint in await query(session.connection, _KEYS, {"keys": keys})
    }
    ids = {new.id for new in jobs} | {job for job, _ in by_key.values()}
    return _Met(by_key, await jobs_by_id(session.connection, list(ids)))


class _Met:
    """The jobs that have the ids and keys of a submit."""

    def __init__(self, by_key: Mapping[str, tuple[JobId, bytes]], jobs: Mapping[JobId, Job]) -> None:
        self._by_key = by_key
        self._jobs = jobs

    def answer(self, new: NewJob) -> Submission:
        """A job without a key has no other body than its own."""
        if new.key is not None and (found := self._by_key.get(new.key)):
            return Submission(self._jobs[found[0]], conflict=found[1] != new.fingerprint)
        return Submission(self._jobs[new.id])
