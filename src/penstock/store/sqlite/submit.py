"""The submit move: insert new jobs, or find the ones that their keys already have."""

from collections.abc import Sequence
from datetime import timedelta

import apsw

from penstock.model.ids import JobId, to_bytes
from penstock.model.job import Job, NewJob
from penstock.model.lifecycle import Move
from penstock.model.submission import Inserted, Known, Misplaced, Submission
from penstock.store.rows import Row
from penstock.store.sqlite.queries import jobs_by_seq
from penstock.store.sqlite.statements import Bulk, load, query
from penstock.store.sqlite.transaction import SqliteTransaction, row_of

_SUBMIT = Bulk("submit")
_SUBMIT_TAGS = load("submit_tags")
_NEWEST_SEQ = load("newest_seq")
_EXISTING = load("existing")

Entry = tuple[NewJob, timedelta]


def submit(tx: SqliteTransaction, entries: Sequence[Entry]) -> list[Submission]:
    """One answer each, in order. A job whose id or key exists already is returned as it is."""
    answers = insert(tx, entries, Move.SUBMIT)
    tx.record_new([answer for answer in answers if isinstance(answer, Inserted)])
    return answers


def insert(tx: SqliteTransaction, entries: Sequence[Entry], move: Move) -> list[Submission]:
    """As `submit`, for any move that inserts jobs; the caller records the events."""
    rings = {new.ring for new, _ in entries}
    accepted = set(filter(tx.admission.takes, rings))
    if len(accepted) == len(rings):
        return _insert(tx, entries, move)
    inserted = iter(_insert(tx, [entry for entry in entries if entry[0].ring in accepted], move))
    return [next(inserted) if new.ring in accepted else Misplaced(new) for new, _ in entries]


def _insert(tx: SqliteTransaction, entries: Sequence[Entry], move: Move) -> list[Submission]:
    watermark: int = tx.connection.execute(_NEWEST_SEQ).get
    inserted = _SUBMIT.execute(tx.connection, [row_of(new, tx.now, ticket_for) for new, ticket_for in entries])
    jobs = [new for new, _ in entries]
    answers: list[Submission] = [Inserted(new, tx.now, move) for new in jobs]
    if inserted < len(entries):
        answers = _resolve_existing(tx, jobs, move, watermark)
    _insert_tags(tx, [new.id for new, answer in zip(jobs, answers, strict=True) if new.tags and answer.created])
    return answers


def _insert_tags(tx: SqliteTransaction, jobs: Sequence[JobId]) -> None:
    if jobs:
        tx.connection.execute(_SUBMIT_TAGS, {"ids": apsw.carray(tuple(map(to_bytes, jobs)))})


def _resolve_existing(tx: SqliteTransaction, jobs: Sequence[NewJob], move: Move, watermark: int) -> list[Submission]:
    """Read the jobs that existed already. Rows above the watermark were inserted by this call."""
    existing = SqliteExisting(tx, jobs)
    fresh = {row[1] for row in existing.rows if row[0] > watermark}
    answers: list[Submission] = []
    for new in jobs:
        raw_id = to_bytes(new.id)
        if raw_id in fresh:
            fresh.remove(raw_id)
            answers.append(Inserted(new, tx.now, move))
        else:
            answers.append(existing.answer(new))
    return answers


class SqliteExisting:
    """The jobs that have the ids and keys of a submit."""

    def __init__(self, tx: SqliteTransaction, jobs: Sequence[NewJob]) -> None:
        ids = tuple(to_bytes(new.id) for new in jobs)
        # An array must not be empty; no user's key is the empty string.
        keys = tuple(new.key for new in jobs if new.key is not None) or ("",)
        self.rows = query(tx.connection, _EXISTING, {"ids": apsw.carray(ids), "keys": apsw.carray(keys)})
        self._by_id = {row[1]: row for row in self.rows}
        self._by_key = {row[2]: row for row in self.rows if row[2] is not None}
        self._jobs: dict[int, Job] = jobs_by_seq(tx.connection, [row[0] for row in self.rows])

    def answer(self, new: NewJob) -> Known:
        return self.by_key(new) or self._known(self._by_id[to_bytes(new.id)], new)

    def by_key(self, new: NewJob) -> Known | None:
        row = None if new.key is None else self._by_key.get(new.key)
        return None if row is None else self._known(row, new)

    def _known(self, row: Row, new: NewJob) -> Known:
        return Known(self._jobs[row[0]], conflict=(row[3] or b"") != new.fingerprint)
