"""Tickets and requests as the scripts read and write them: 16 bytes a ticket, grouped by priority, queue and type."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from penstock.model.ids import ID_BYTES, JobId, from_packed, shard_of, to_packed
from penstock.model.job import BacklogKey, Ticket
from penstock.model.workers import WorkRequest

logger = logging.getLogger("penstock.broker")


class Request(Struct, frozen=True, omit_defaults=True):
    """What a call of `take` asks for."""

    types: frozenset[str]
    limit: int
    queues: frozenset[str] | None = None
    except_queues: frozenset[str] = frozenset()
    least_priority: dict[str, int] = {}


def request(wanted: WorkRequest, limit: int) -> bytes:
    return msgspec.json.encode(Request(wanted.types, limit, wanted.queues, wanted.except_queues, wanted.least_priority))


def packed(tickets: Iterable[Ticket]) -> list[str | int | bytes]:
    """Four words for each group: priority, queue, type, and the ids in the order of the tickets."""
    ids: dict[tuple[int, str, str], list[JobId]] = {}
    for ticket in tickets:
        ids.setdefault((ticket.priority, ticket.queue, ticket.type), []).append(ticket.job)
    return [word for group, jobs in ids.items() for word in (*group, to_packed(jobs))]


def tickets(text: bytes) -> list[Ticket]:
    """The tickets that a script picked, group by group.

    A group that cannot be read is left out: its tickets are lost, as tickets may be, and the others are not.
    """
    found: list[Ticket] = []
    try:
        for piece in _pieces(text):
            found += _group(*piece)
    except ValueError:
        logger.warning("tickets in a form that cannot be read are dropped; their jobs get others")
    return found


def _pieces(text: bytes) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """Priority, queue, type and ids of each group. A text line with the priority and the three lengths goes before."""
    start = 0
    while start < len(text):
        queue = text.index(b"\n", start) + 1
        priority, queue_bytes, type_bytes, ids = map(int, text[start:queue].split())
        type_name = queue + queue_bytes
        packed = type_name + type_bytes
        start = packed + ids * ID_BYTES
        if not queue <= type_name <= packed <= start <= len(text):
            raise ValueError("the lengths of a group do not fit its text")
        yield priority, text[queue:type_name], text[type_name:packed], text[packed:start]


def _group(priority: int, queue: bytes, type_name: bytes, packed: bytes) -> Sequence[Ticket]:
    try:
        key = BacklogKey(queue.decode(), type_name.decode())
    except UnicodeDecodeError:
        logger.warning("tickets of queue %r and type %r are dropped: that is no text", queue, type_name)
        return ()
    return [Ticket(shard_of(job), job, *key, priority) for job in from_packed(packed)]


def depths(words: Sequence[bytes]) -> dict[BacklogKey, int]:
    """Tickets by backlog key, from alternating names and numbers; a name that cannot be read is left out."""
    found: dict[BacklogKey, int] = {}
    for name, depth in zip(words[::2], words[1::2], strict=True):
        try:
            found[_backlog_key(name)] = int(depth)
        except ValueError:
            logger.warning("the tickets of %r are not counted: its name cannot be read", name)
    return found


def _backlog_key(name: bytes) -> BacklogKey:
    """Parsed from the length of the queue, a colon, the queue, a slash and the type."""
    length, _, names = name.partition(b":")
    queue_end = int(length)
    return BacklogKey(names[:queue_end].decode(), names[queue_end + 1 :].decode())
