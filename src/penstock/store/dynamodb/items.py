"""The head of a job: one item of at most about 1 KB, which every move reads, changes and swaps as a whole.

Attributes of their own are those that indexes hold or conditions compare; the rest is two blobs of msgpack: `c` is what
never changes (`Origin`), `m` what moves change (`Course`).

    st q t pr due un w f ex sq   state, queue, type, priority, due, until (ticket, lease), worker, fence, expires, order
    k                            there if the job has an idempotency key
    v                            the job's version
    x                            the token of the last write: a swap compares it, and so recognises its own
    gp gs / ap aq                keys of the indexes `place` and `age`
    ttl                          second after which the job is gone: reads hide it, DynamoDB deletes it
    en ut tn up uq               the journal's part, see below

*The journal's part.* With `keep_events` every move appends to `ut` what it did, as an `Untold`, in the same write, and
sets `up` and `uq`, the keys of the sparse index `untold`. `en` numbers the entries of a job: 1, 2, 3 … over its whole
life. `number_entries` copies those of `ut` whose number is above `tn`, then sets `tn` to the last number it has copied
and removes `ut`, `up` and `uq`, on the condition that `x` and `tn` are still as it has read them, and leaves `x` as it
is. A move that was decided on an older reading may write copied entries again: their numbers are not above `tn`, so
they are skipped.
"""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.model.ids import JobId
from penstock.model.lifecycle import State
from penstock.store.dynamodb.keys import AFTER_ALL, JOB, SEPARATOR, job_key, millis_key
from penstock.store.dynamodb.values import Item, ItemKey


class Origin(Struct, frozen=True, array_like=True, omit_defaults=True, kw_only=True):
    """What a job was submitted with and keeps for ever. Times and spans are in milliseconds.

    `params` None is JSON's null, unless they lie in an item of their own (`params_apart`) or in the object store
    (`params_absent`). `retry`, `inputs` and `params_object` are JSON.
    """

    created: int
    params: bytes | None = None
    params_apart: bool = False
    params_absent: bool = False
    timeout: int | None = None
    params_object: str | None = None
    retry: str | None = None
    tags: tuple[str, ...] = ()
    inputs: str | None = None
    key: str | None = None
    fingerprint: bytes = b""
    retry_of: str | None = None
    schedule: str | None = None
    tick_at: int | None = None
    interval: int | None = None
    anchor: bool = False


class Course(Struct, frozen=True, array_like=True, omit_defaults=True, kw_only=True):
    """What moves change besides the head's own attributes.

    `result_apart` and `error_apart` are the sort keys of the items that hold what is too large for the head.
    """

    attempt: int = 0
    losses: int = 0
    alone: bool = False
    alone_in_worker: bool = False
    begun: bool = False
    started: int | None = None
    completed: int | None = None
    cancel_requested: int | None = None
    reason: str | None = None
    result: bytes | None = None
    result_apart: str | None = None
    result_object: str | None = None
    error: bytes | None = None
    error_apart: str | None = None
    outputs: str | None = None
    progress: bytes | None = None
    log_position: int = 0
    log_size: int = 0
    log_number: int = 0
    log_fence: int = 0


class Untold(Struct, frozen=True, array_like=True, omit_defaults=True):
    """One entry of a job that is not in the journal yet, with everything that journal and history need.

    `number` counts the entries of the job. `at` and `span` are milliseconds; `span` is how long a claimed job had been
    due, or a settled attempt ran. A `move` of `RETYPED` is no event: `before` is running, `reason` the former type, and
    `version` that of the last event. `before` is empty for a new job.
    """

    number: int
    version: int
    move: str
    before: str
    after: str
    at: int
    type: str
    queue: str
    fence: int
    attempt: int
    span: int | None = None
    reason: str | None = None


class Head(Struct, frozen=True, kw_only=True):
    """A job's head, decoded. `until` is the deadline of a queued job's ticket, or of a running job's claim."""

    id: JobId
    order: str
    type: str
    queue: str
    priority: int
    state: State
    due: int
    fence: int = 0
    version: int = 1
    token: str = ""
    until: int | None = None
    worker: str | None = None
    expires: int | None = None
    ttl: int | None = None
    origin: Origin
    course: Course = Course()
    entries: int = 0
    told: int = 0
    untold: tuple[Untold, ...] = ()

    @property
    def key(self) -> ItemKey:
        return job_key(self.id)


_encode = msgspec.msgpack.Encoder().encode
_origin = msgspec.msgpack.Decoder(Origin)
_course = msgspec.msgpack.Decoder(Course)
_untold = msgspec.msgpack.Decoder(tuple[Untold, ...])

NOT_LISTED = frozenset({State.SUCCEEDED})
"""Ended states that have no place: most jobs end so, and lists find them by age."""

DUE, LINE, AWAY, UNTOLD = "due", "line", "away", "untold"
"""Partitions of the index `place`, after the shard's prefix; and that of `untold`."""


def place_of(prefix: str, head: Head) -> tuple[str, str] | None:
    """The keys of the index `place`: due jobs by time, the line by urgency, all others by age."""
    match head.state:
        case State.SCHEDULED:
            return prefix + DUE, f"{millis_key(head.due)}#{head.order}"
        case State.QUEUED if head.until is None:
            return prefix + LINE, f"{line_prefix(head.queue, head.type)}{9 - head.priority}{head.order}"
        case State.QUEUED | State.RUNNING:
            return prefix + AWAY, head.order
    return None if head.state in NOT_LISTED else (prefix + head.state.value, head.order)


def line_prefix(queue: str, type_name: str) -> str:
    """What the sort keys of one queue and type in the line begin with."""
    return f"{queue}{SEPARATOR}{type_name}{SEPARATOR}"


def after_line(queue: str, type_name: str) -> str:
    """Above all sort keys of one queue and type, below those of the next."""
    return line_prefix(queue, type_name) + AFTER_ALL


def moving_attributes(prefix: str, head: Head) -> Item:
    """What a move writes; None removes the attribute."""
    place = place_of(prefix, head)
    found: Item = {
        "st": head.state.value,
        "t": head.type,
        "due": head.due,
        "f": head.fence,
        "v": head.version,
        "x": head.token,
        "un": head.until,
        "w": head.worker,
        "ttl": head.ttl,
        "m": _encode(head.course),
        "gp": place[0] if place else None,
        "gs": place[1] if place else None,
    }
    if head.untold:
        found |= {"en": head.entries, "ut": _encode(head.untold), "up": prefix + UNTOLD, "uq": untold_key(head)}
    return found


def untold_key(head: Head) -> str:
    return f"{millis_key(head.untold[0].at)}#{head.id}"


def item_of(prefix: str, head: Head) -> Item:
    """The whole item, as it is inserted."""
    return {
        "pk": head.id,
        "sk": JOB,
        "q": head.queue,
        "pr": head.priority,
        "ex": head.expires,
        "sq": head.order,
        "k": None if head.origin.key is None else 1,
        "c": _encode(head.origin),
        "ap": prefix + "age",
        "aq": head.order,
        "tn": head.told,
        **moving_attributes(prefix, head),
    }


def head_of(item: Item) -> Head:
    """A head from its item, as it was read."""
    told = item.get("tn", 0)
    entries = _untold.decode(item["ut"]) if "ut" in item else ()
    return Head(
        id=JobId(item["pk"]),
        order=item["sq"],
        type=item["t"],
        queue=item["q"],
        priority=item["pr"],
        state=State(item["st"]),
        due=item["due"],
        fence=item["f"],
        version=item["v"],
        token=item["x"],
        until=item.get("un"),
        worker=item.get("w"),
        expires=item.get("ex"),
        ttl=item.get("ttl"),
        origin=_origin.decode(item["c"]),
        course=_course.decode(item["m"]),
        entries=item.get("en", 0),
        told=told,
        untold=tuple(one for one in entries if one.number > told),
    )


def note(head: Head, move: str, before: State | None, at: int, *, span: int | None = None, reason: Any = None) -> Head:
    """The head with one more entry for the journal, about what it now is."""
    entry = Untold(
        number=head.entries + 1,
        version=head.version,
        move=move,
        before="" if before is None else before.value,
        after=head.state.value,
        at=at,
        type=head.type,
        queue=head.queue,
        fence=head.fence,
        attempt=head.course.attempt,
        span=span,
        reason=reason if reason is not None else head.course.reason,
    )
    return replace(head, entries=entry.number, untold=(*head.untold, entry))
