"""A new job as items: its head, what is written beside it before, and the parts of a transaction that inserts it."""

from collections.abc import Iterator
from datetime import timedelta

from msgspec import Struct

from penstock.model.clock import millis, utc
from penstock.model.errors import Invalid
from penstock.model.job import JSON_NULL, PRIORITIES, NewJob
from penstock.model.lifecycle import Move, State
from penstock.model.submission import due
from penstock.store.dynamodb.conditions import ABSENT, ItemCondition, Part, put_part
from penstock.store.dynamodb.items import Head, Origin, item_of, note
from penstock.store.dynamodb.keys import Sequence, idempotency_key, millis_key, new_token, params_key
from penstock.store.dynamodb.values import Item
from penstock.store.rows import optional_millis, retry_of, text_of

INLINE_BYTES = 300
"""Params and outcomes above this are items of their own: every move is billed by the size of the whole head."""

PARAMS_DAY = 86_400
"""Seconds after which the params of a job that was never inserted are deleted."""


class JobInsertion(Struct, frozen=True):
    """A job about to be inserted. `beside` must be written before it: a superset is harmless, a gap is not."""

    new: NewJob
    head: Head
    prefix: str

    @property
    def item(self) -> Item:
        return item_of(self.prefix, self.head)

    def beside(self) -> Iterator[Item]:
        """The items that lead to this job, or hold what is too large for its head."""
        head, new, prefix = self.head, self.new, self.prefix
        if head.origin.params_apart:
            pk, sk = params_key(head.id)
            yield {"pk": pk, "sk": sk, "d": new.params}
        if head.expires is not None:
            yield {"pk": f"{prefix}expires", "sk": f"{millis_key(head.expires)}#{head.id}"}
        for tag in new.tags:
            yield {"pk": f"{prefix}tag#{tag}", "sk": f"{head.order}#{head.id}"}

    def parts(self, key_condition: ItemCondition = ABSENT) -> list[Part]:
        """The transaction that inserts it: the key first, if it has one, then the job."""
        job = put_part(self.item, ABSENT)
        return [job] if self.new.key is None else [put_part(self._key_item(), key_condition), job]

    def _key_item(self) -> Item:
        key = self.new.key or ""
        pk, sk = idempotency_key(self.prefix, key)
        return {"pk": pk, "sk": sk, "job": self.new.id, "fp": self.new.fingerprint, "sq": self.head.order}


class Inserter:
    """Plans the insertion of new jobs into one shard."""

    def __init__(self, prefix: str, *, keep_events: bool) -> None:
        self._prefix = prefix
        self._keep_events = keep_events
        self._sequence = Sequence()

    def plan(self, new: NewJob, now: int, ticket_for: timedelta, move: Move = Move.SUBMIT) -> JobInsertion:
        """`now` decides whether it is queued already, and is the time of its event.

        Invalid if one of its instants or its priority is out of the accepted range.
        """
        _check(new)
        due_at = due(new, now)
        queued = due_at <= now
        head = Head(
            id=new.id,
            order=self._sequence.next(now),
            type=new.type,
            queue=new.queue,
            priority=new.priority,
            state=State.QUEUED if queued else State.SCHEDULED,
            due=due_at,
            token=new_token(),
            until=now + millis(ticket_for) if queued and new.ticketed else None,
            expires=optional_millis(new.expires_at),
            origin=_origin(new, now),
        )
        return JobInsertion(new, note(head, move.value, None, now) if self._keep_events else head, self._prefix)


def _check(new: NewJob) -> None:
    """What columns of tables check elsewhere. The keys of indexes are ordered only within these ranges."""
    if not 0 <= new.priority < PRIORITIES:
        raise Invalid(f"the store cannot keep this: priority {new.priority} is not from 0 to {PRIORITIES - 1}")
    for name, at in (("due_at", new.due_at), ("expires_at", new.expires_at), ("tick_at", new.tick_at)):
        if at is not None:
            utc(name, at)


def _origin(new: NewJob, now: int) -> Origin:
    apart = new.params is not None and len(new.params) > INLINE_BYTES
    return Origin(
        created=now,
        params=None if apart or new.params == JSON_NULL else new.params,
        params_apart=apart,
        params_absent=new.params is None,
        timeout=None if new.timeout is None else millis(new.timeout),
        params_object=text_of(new.params_object),
        retry=retry_of(new.retry),
        tags=new.tags,
        inputs=text_of(new.inputs),
        key=new.key,
        fingerprint=new.fingerprint,
        retry_of=new.retry_of,
        schedule=new.schedule,
        tick_at=optional_millis(new.tick_at),
        interval=None if new.interval is None else millis(new.interval),
        anchor=new.anchor,
    )
