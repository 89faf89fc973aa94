"""Tickets and requests as the scripts read and write them: 16 bytes a ticket; the rest is the name of its lane."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from penstock.model.ids import ID_BYTES, JobId, from_packed, shard_of, to_packed
from penstock.model.job import Line, Ticket
from penstock.model.workers import Subscription


class Request(Struct, frozen=True, omit_defaults=True):
    """What a taker asks for."""

    types: frozenset[str]
    limit: int
    queues: frozenset[str] | None = None
    except_queues: frozenset[str] = frozenset()
    least_priority: dict[str, int] = {}


def request(wanted: Subscription, limit: int) -> bytes:
    return msgspec.json.encode(Request(wanted.types, limit, wanted.queues, wanted.except_queues, wanted.least_priority))


def lanes(tickets: Iterable[Ticket]) -> list[str | int | bytes]:
    """Four words for each lane: priority, queue, type, and the ids in the order of the tickets."""
    ids: dict[tuple[int, str, str], list[JobId]] = {}
    for ticket in tickets:
        ids.setdefault((ticket.priority, ticket.queue, ticket.type), []).append(ticket.job)
    return [word for lane, jobs in ids.items() for word in (*lane, to_packed(jobs))]


def tickets(text: bytes) -> list[Ticket]:
    """What a script picked: for each lane its name, the number of ids and the ids."""
    return [ticket for lane, ids in _pieces(text) for ticket in _of_lane(lane, ids)]


def _pieces(text: bytes) -> Iterator[tuple[str, bytes]]:
    start = 0
    while start < len(text):
        lane_end = text.index(b"\n", start)
        count_end = text.index(b"\n", lane_end + 1)
        ids = count_end + 1
        end = ids + ID_BYTES * int(text[lane_end + 1 : count_end])
        yield text[start:lane_end].decode(), text[ids:end]
        start = end


def _of_lane(lane: str, ids: bytes) -> Sequence[Ticket]:
    priority, _, name = lane.partition(":")
    line, level = line_of(name), int(priority)
    return [Ticket(shard_of(job), job, *line, level) for job in from_packed(ids)]


def line_of(name: str) -> Line:
    """From `queue/type`."""
    queue, _, type_name = name.partition("/")
    return Line(queue, type_name)
