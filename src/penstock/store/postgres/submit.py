"""The submit move: insert new jobs, or find the ones that their keys already have."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from psycopg.errors import UniqueViolation

from penstock.model.clock import Clock, millis
from penstock.model.ids import JobId
from penstock.model.job import Job, NewJob
from penstock.model.lifecycle import Move
from penstock.model.submission import Held, Inserted, Known, Misplaced, Submission
from penstock.store.postgres import arrays
from penstock.store.postgres.connection import HeldElsewhere
from penstock.store.postgres.queries import jobs_by_id
from penstock.store.postgres.statements import PostgresTransaction, Session, load, query
from penstock.store.rows import Admission, Row, optional_millis, retry_of, text_of

_SUBMIT = load("submit")
_SUBMIT_KEYED = load("submit_keyed")
_SUBMIT_ONE = load("submit_one")
_KEYS = load("keys")
_HELD_KEYS = load("held_keys")

PATIENCE = timedelta(milliseconds=200)
"""How long a submit waits for a key that another transaction writes: a commit takes less, a user's may take longer."""

Entry = tuple[NewJob, timedelta]
T = TypeVar("T")


class RunMove(Protocol):
    """Runs a move on a connection of the pool; see `PostgresStore`."""

    async def __call__(self, move: Callable[[Session], Awaitable[T]], /) -> T: ...


_FIELDS = (
    "id", "type", "queue", "priority", "due_at", "delay", "expires_at", "timeout", "params_object", "inputs",
    "retry_of", "retry", "tags", "params", "schedule", "tick_at", "interval",
)  # fmt: skip


async def submit(session: Session, entries: Sequence[Entry]) -> list[Submission]:
    """One answer each, in order. A job whose id or key is there already is given back as it is."""
    return await insert(session, entries, Move.SUBMIT)


async def insert(session: Session, entries: Sequence[Entry], move: Move) -> list[Submission]:
    """`submit` for any move that creates jobs."""
    jobs = [new for new, _ in entries]
    scope = session.scope | _columns(entries) | {"asked": len(jobs), "move": move}
    ((now, complete, fresh, ring, closed),) = await _run_insert(session, jobs, scope)
    if complete:
        return [Inserted(new, now, move) for new in jobs]
    answers = await _resolve_existing(session, jobs, set(fresh or ()), now, move, Admission(ring, closed))
    # A job that was found and is gone was pruned between the two statements: its key is free now.
    gone = [entry for entry, answer in zip(entries, answers, strict=True) if answer is None]
    again = iter(await insert(session, gone, move) if gone else ())
    return [next(again) if answer is None else answer for answer in answers]


async def held_keys(session: Session, keys: Sequence[str]) -> set[str]:
    """The keys that an open transaction holds."""
    return {key for (key,) in await query(session.connection, _HELD_KEYS, {"keys": arrays.texts(keys)})}


async def _run_insert(session: Session, jobs: Sequence[NewJob], scope: dict[str, Any]) -> list[Row]:
    """Insert. The fast statement assumes that no id is in use and fails if one is; then the slow one checks each job.
    Inside a transaction the fast one cannot be tried, as its failure would end the transaction."""
    unkeyed = all([new.key is None for new in jobs])
    if not isinstance(session, PostgresTransaction) and unkeyed:
        with suppress(UniqueViolation):
            return await query(session.connection, _SUBMIT, scope)
    hurried = not isinstance(session, PostgresTransaction) and not unkeyed
    patience = f"{millis(PATIENCE)}ms" if hurried else None
    # What one caller submits after the other, and the first job of a batch: the general statement takes a third longer.
    alone = len(jobs) == 1 and jobs[0].key is not None and not jobs[0].tags
    statement = _SUBMIT_ONE if alone else _SUBMIT_KEYED
    return await query(session.connection, statement, scope | _keys(jobs) | {"patience": patience})


def _columns(entries: Sequence[Entry]) -> dict[str, Any]:
    jobs = [new for new, _ in entries]
    of = dict(zip(_FIELDS, zip(*map(attrgetter(*_FIELDS), jobs), strict=True), strict=True))
    return {
        **arrays.id_range(of["id"]),
        "types": arrays.texts(of["type"]),
        "queues": arrays.texts(of["queue"]),
        "priorities": arrays.bigints(of["priority"]),
        "due": arrays.bigints(_each(optional_millis, of["due_at"])),
        "delays": arrays.bigints(_each(_optional_span, of["delay"])),
        "expires": arrays.bigints(_each(optional_millis, of["expires_at"])),
        "tickets": arrays.bigints(_each(_ticket_span, [(new.ticketed, ticket_for) for new, ticket_for in entries])),
        "timeouts": arrays.bigints(_each(_optional_span, of["timeout"])),
        "owning": arrays.booleans(_each(any, list(zip(of["params_object"], of["inputs"], strict=True)))),
        "retried": arrays.optional_uuids(of["retry_of"]),
        "retries": arrays.texts(_each(retry_of, of["retry"])),
        "tags": arrays.texts(_each(text_of, of["tags"])),
        "inputs": arrays.texts(_each(text_of, of["inputs"])),
        "objects": arrays.texts(_each(text_of, of["params_object"])),
        "params": arrays.byteas(of["params"]),
        "schedules": arrays.texts(of["schedule"]),
        "ticks": arrays.bigints(_each(optional_millis, of["tick_at"])),
        "intervals": arrays.bigints(_each(_optional_span, of["interval"])),
    }


def _each(write: Callable[[Any], T], values: Sequence[Any]) -> Sequence[T]:
    """The values as they are stored. Most columns of a batch hold one value, which is converted once."""
    if arrays.alike(values):
        return (write(values[0]),) * len(values)
    return [write(value) for value in values]


def _optional_span(span: timedelta | None) -> int | None:
    return None if span is None else millis(span)


def _ticket_span(ticket: tuple[bool, timedelta]) -> int | None:
    ticketed, ticket_for = ticket
    return millis(ticket_for) if ticketed else None


def _keys(jobs: Sequence[NewJob]) -> dict[str, Any]:
    return {
        "keys": arrays.texts([new.key for new in jobs]),
        "fingerprints": arrays.byteas([new.fingerprint for new in jobs]),
        "anchors": arrays.booleans([new.anchor for new in jobs]),
        "rings": arrays.bigints([new.ring for new in jobs]),
    }


async def _resolve_existing(
    session: Session, jobs: Sequence[NewJob], fresh: set[JobId], now: int, move: Move, admission: Admission
) -> list[Submission | None]:
    """Some jobs were not admitted, or exist already: find out which; None for one that was pruned meanwhile."""
    met = await _find_existing(session, jobs)
    answers: list[Submission | None] = []
    for new in jobs:
        if new.id in fresh:
            fresh.remove(new.id)
            answers.append(Inserted(new, now, move))
        else:
            answers.append(met.answer(new) if admission.takes(new.ring) else Misplaced(new))
    return answers


async def _find_existing(session: Session, jobs: Sequence[NewJob]) -> "PostgresExisting":
    keys = arrays.texts([new.key for new in jobs if new.key is not None])
    by_key = {
        key: (job, fingerprint) for key, job, fingerprint in await query(session.connection, _KEYS, {"keys": keys})
    }
    ids = {new.id for new in jobs} | {job for job, _ in by_key.values()}
    return PostgresExisting(by_key, await jobs_by_id(session.connection, list(ids)))


class PostgresExisting:
    """The jobs that have the ids and keys of a submit."""

    def __init__(self, by_key: Mapping[str, tuple[JobId, bytes]], jobs: Mapping[JobId, Job]) -> None:
        self._by_key = by_key
        self._jobs = jobs

    def answer(self, new: NewJob) -> Known | None:
        """The existing job. Without a key it cannot be a conflict."""
        if new.key is not None and (found := self._by_key.get(new.key)):
            return self._known(found[0], conflict=found[1] != new.fingerprint)
        return self._known(new.id, conflict=False)

    def _known(self, job: JobId, *, conflict: bool) -> Known | None:
        return Known(self._jobs[job], conflict=conflict) if job in self._jobs else None


ATTEMPTS = 3
SUSPECTED_SECONDS = 60.0
"""How long a key that was held is checked before it is submitted together with others."""


class KeyedSubmits:
    """Submits with keys. A key that another transaction holds delays its own jobs, and no others.

    The first submit that asks for a held key waits a little for it; later ones know that it is held.
    """

    def __init__(self, run_move: RunMove, clock: Clock) -> None:
        self._run_move = run_move
        self._clock = clock
        self._suspects: dict[str, float] = {}

    async def submit(self, entries: Sequence[Entry]) -> list[Submission]:
        """One answer each, in order: Held for those whose key is held, and the others as if these were not there."""
        held = await self._find_held(self._suspected(entries))
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._submit_without(held, entries)
            except HeldElsewhere:
                held |= await self._find_held({new.key for new, _ in entries if new.key is not None} - held)
        return await self._submit_without(held, entries)

    async def _submit_without(self, held: set[str], entries: Sequence[Entry]) -> list[Submission]:
        free = [entry for entry in entries if entry[0].key not in held]
        answers = iter(await self._run_move(partial(submit, entries=free)) if free else ())
        return [Held(new) if new.key in held else next(answers) for new, _ in entries]

    def _suspected(self, entries: Sequence[Entry]) -> set[str]:
        if not self._suspects:
            return set()
        now = self._clock.monotonic()
        self._suspects = {key: until for key, until in self._suspects.items() if until > now}
        return {new.key for new, _ in entries if new.key in self._suspects}

    async def _find_held(self, keys: Collection[str]) -> set[str]:
        if not keys:
            return set()
        held = await self._run_move(partial(held_keys, keys=sorted(keys)))
        until = self._clock.monotonic() + SUSPECTED_SECONDS
        for key in keys:
            self._suspects.pop(key, None)
        self._suspects.update(dict.fromkeys(held, until))
        return held
