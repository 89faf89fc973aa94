"""The results of a submit. The job of an inserted one is built on demand: a bulk submit needs few of them."""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import ClassVar, TypeAlias

from msgspec import Struct

from penstock.model.clock import from_millis, millis, to_millis
from penstock.model.errors import MapChanged, StoreUnavailable
from penstock.model.ids import JobId, shard_of
from penstock.model.job import Job, NewJob
from penstock.model.lifecycle import Event, Move, State

RETRY_AFTER_SECONDS = 1

# Looking up an enum member by name is slow, and a bulk submit needs thousands.
_QUEUED = State.QUEUED


class Known(Struct, frozen=True):
    """A job that existed already, or one whose insertion is in an event; `conflict`: its key belongs to another."""

    job: Job
    event: Event | None = None
    conflict: bool = False

    @property
    def id(self) -> JobId:
        return self.job.id

    @property
    def state(self) -> State:
        return self.job.state

    @property
    def created(self) -> bool:
        return self.event is not None


class Inserted(Struct, frozen=True, gc=False):
    """A job that was inserted now, by `move`: the job as it was written, without reading it back."""

    created: ClassVar[bool] = True
    conflict: ClassVar[bool] = False

    new: NewJob
    now: int
    move: Move = Move.SUBMIT

    @property
    def id(self) -> JobId:
        return self.new.id

    @property
    def state(self) -> State:
        new = self.new
        if new.due_at is None and new.delay is None:
            return _QUEUED
        return State.QUEUED if due(new, self.now) <= self.now else State.SCHEDULED

    @property
    def event(self) -> Event:
        new = self.new
        return Event(new.id, new.type, new.queue, self.move, None, self.state, _instant(self.now), 0, 0)

    @property
    def job(self) -> Job:
        new = self.new
        return Job(
            id=new.id,
            type=new.type,
            queue=new.queue,
            state=self.state,
            priority=new.priority,
            params=new.params,
            params_object=new.params_object,
            retry=new.retry,
            timeout=None if new.timeout is None else _whole(new.timeout),
            due_at=from_millis(due(new, self.now)),
            created_at=from_millis(self.now),
            expires_at=None if new.expires_at is None else _whole_at(new.expires_at),
            tags=new.tags,
            inputs=new.inputs,
            retry_of=new.retry_of,
            schedule=new.schedule,
            tick_at=None if new.tick_at is None else _whole_at(new.tick_at),
            interval=None if new.interval is None else _whole(new.interval),
        )


@lru_cache(maxsize=16)
def _instant(now: int) -> datetime:
    """Cached: it is the same for all jobs of a commit."""
    return from_millis(now)


class Held(Struct, frozen=True, gc=False):
    """Neither inserted nor known: an open transaction holds the key. Its `job` is not known yet."""

    created: ClassVar[bool] = False
    conflict: ClassVar[bool] = False
    event: ClassVar[None] = None

    new: NewJob

    @property
    def id(self) -> JobId:
        return self.new.id

    @property
    def refusal(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"the idempotency key {self.new.key!r} is held by a transaction that has not ended; retry in a moment",
            retry_after=RETRY_AFTER_SECONDS,
        )

    @property
    def state(self) -> State:
        raise self.refusal

    @property
    def job(self) -> Job:
        raise self.refusal


class Misplaced(Struct, frozen=True, gc=False):
    """Neither inserted nor known: the shard is closed to new jobs, or has another ring than the job was placed by.

    Nothing was written: read the shard map, and place the job again.
    """

    created: ClassVar[bool] = False
    conflict: ClassVar[bool] = False
    event: ClassVar[None] = None

    new: NewJob

    @property
    def id(self) -> JobId:
        return self.new.id

    @property
    def refusal(self) -> MapChanged:
        number = shard_of(self.new.id)
        return MapChanged(
            f"shard {number} is not the place of this job any more, the shard map has changed; submit again",
            shard=number,
            retry_after=RETRY_AFTER_SECONDS,
        )

    @property
    def state(self) -> State:
        raise self.refusal

    @property
    def job(self) -> Job:
        raise self.refusal


Submission: TypeAlias = Inserted | Known | Held | Misplaced
"""The result for one NewJob: inserted (`event`), existing (no event), refused (`conflict`), or not decided yet."""


def due(new: NewJob, now: int) -> int:
    """When a new job is due, by the shard's clock; in milliseconds, as `now`."""
    if new.due_at is not None:
        return to_millis(new.due_at)
    return now + millis(new.delay) if new.delay else now


def _whole(span: timedelta) -> timedelta:
    """A span as it is kept: in whole milliseconds."""
    return timedelta(milliseconds=millis(span))


def _whole_at(at: datetime) -> datetime:
    return from_millis(to_millis(at))
