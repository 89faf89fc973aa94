"""Schedules as items, and the jobs of their ticks that may not have ended.

    item      pk                      sk               index place
    schedule  <p>schedules            <name>           <p>tick, by next tick, unless it is paused
    waiting   <p>waiting              <name>
    record    <p>ticks#<name>#<g>     <instant>

`<p>` is the shard's prefix, `<g>` the schedule's own mark: one of the same name that is made later has other records,
and those of a dropped one expire. A schedule that waits for the end of a job (for its pending tick, or to count from
it) has an item `waiting`, put in the same write with a new token; readers delete one that is not true any more by its
token.

A settle does not write to the schedule of its job. Instead a schedule lists the jobs that had not ended at its last
tick (`aj`); readers ask those jobs themselves. If there are too many for an item, records from `ao` on are asked too.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import from_millis, utc
from penstock.model.ids import JobId, from_packed, to_packed
from penstock.model.lifecycle import TERMINAL
from penstock.model.schedule import Every, Schedule
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import millis_key
from penstock.store.dynamodb.values import Item
from penstock.store.rows import instant, optional_millis, schedule_of

LISTED_MAX = 64
"""How many jobs a schedule's item lists: about a kilobyte."""

_encode = msgspec.json.Encoder().encode
_INSTANTS = ("start_at", "end_at", "next_tick_at", "pending_tick_at", "last_tick_at")


class StoredSchedule(Struct, frozen=True):
    """A schedule as it was read, with what it knows about its jobs; `completed` is when the last known one ended."""

    schedule: Schedule
    token: str
    mark: str
    listed: tuple[JobId, ...] = ()
    more_from: int | None = None
    completed: int | None = None

    @property
    def waits(self) -> bool:
        return waits(self.schedule)


class Activity(Struct, frozen=True):
    """The jobs of a schedule that have not ended, oldest first, and when the last one ended."""

    active: tuple[JobId, ...]
    completed: int | None


def check_instants_of(schedule: Schedule) -> None:
    """Raise Invalid for an instant that cannot be kept."""
    for field in _INSTANTS:
        at = getattr(schedule, field)
        if isinstance(at, datetime):
            utc(field, at)


def waits(schedule: Schedule) -> bool:
    """Whether the end of a job may be what it waits for."""
    counts = isinstance(schedule.when, Every) and schedule.when.after_completion and schedule.next_tick_at is None
    return not schedule.paused and (schedule.pending_tick_at is not None or counts)


def schedule_attributes(prefix: str, schedule: Schedule, token: str) -> Item:
    """What a change of the intention writes; None removes the attribute."""
    intention = replace(schedule, next_tick_at=None, pending_tick_at=None, last_tick_at=None)
    return {
        "v": schedule.version,
        "pz": schedule.paused,
        "pt": optional_millis(schedule.pending_tick_at),
        "nt": optional_millis(schedule.next_tick_at),
        "ii": _encode(intention),
        "x": token,
        **place_of(prefix, schedule.name, None if schedule.paused else optional_millis(schedule.next_tick_at)),
    }


def place_of(prefix: str, name: str, tick_at: int | None) -> Item:
    """The keys of the index `place`: only what is to tick has one."""
    if tick_at is None:
        return {"gp": None, "gs": None}
    return {"gp": f"{prefix}tick", "gs": f"{millis_key(tick_at)}#{name}"}


def stored_of(item: Item) -> StoredSchedule:
    schedule = replace(
        schedule_of(item["ii"]),
        version=item["v"],
        paused=item["pz"],
        next_tick_at=instant(item.get("nt")),
        pending_tick_at=instant(item.get("pt")),
        last_tick_at=instant(item.get("lt")),
    )
    listed = tuple(from_packed(item.get("aj", b"")))
    return StoredSchedule(schedule, item["x"], item["g"], listed, item.get("ao"), item.get("lc"))


def activity_of(stored: StoredSchedule, jobs: Iterable[JobId], heads: Mapping[JobId, Head]) -> Activity:
    """What these jobs of a schedule are doing; one that is gone has ended."""
    known = [(job, heads[job]) for job in jobs if job in heads]
    ended = [head.course.completed or 0 for _, head in known if head.state in TERMINAL]
    completed = max([*ended, *([] if stored.completed is None else [stored.completed])], default=None)
    return Activity(tuple(job for job, head in known if head.state not in TERMINAL), completed)


def listed_attributes(activity: Activity, added: Sequence[tuple[JobId, int]], heads: Mapping[JobId, Head]) -> Item:
    """The list of a schedule after a tick that has added jobs, each with the instant of its tick."""
    ticks = {job: head.origin.tick_at or 0 for job, head in heads.items()} | dict(added)
    jobs = [*activity.active, *(job for job, _ in added if job not in activity.active)]
    beyond = [ticks.get(job, 0) for job in jobs[LISTED_MAX:]]
    return {
        "aj": to_packed(jobs[:LISTED_MAX]) or None,
        "ao": min(beyond, default=None),
        "lc": activity.completed,
    }


def completion(schedule: Schedule, completed: int | None) -> datetime | None:
    """When the last job ended; never before the last tick if the schedule waits for a completion.

    A job that is gone, or a clock that was set back, would otherwise leave it waiting for ever.
    """
    if schedule.next_tick_at is not None or schedule.last_tick_at is None:
        return instant(completed)
    return max(schedule.last_tick_at, from_millis(completed or 0))
