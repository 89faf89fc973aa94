"""The SDK's iterators over streams: connections are lost, cut and refused, and each event is read once."""

import asyncio
import random
from collections.abc import AsyncGenerator, Generator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock import AsyncClient, Client
from penstock.client.calls import Call, Reply, StreamBlock
from penstock.model.errors import JournalGone, ServerUnavailable, Unauthorized
from penstock.model.events import event_id
from penstock.model.ids import JobId
from penstock.model.job import LogLine
from penstock.model.lifecycle import State
from penstock.model.wire.events import EventItem, MissedEvents

JOB = JobId("0190a6e2-0000-7000-8000-000000000000")
AT = datetime(2026, 1, 1, tzinfo=UTC)
LOST = ServerUnavailable("no answer")


def item(version: int, after: State = State.RUNNING) -> EventItem:
    return EventItem(
        id=event_id(JOB, version),
        job=JOB,
        version=version,
        type="add",
        queue="sums",
        move="claim",
        before=None,
        after=after,
        attempt=1,
        reason=None,
        at=AT,
    )


def block(data: object, id: str = "", event: str = "message") -> StreamBlock:
    return StreamBlock(event, msgspec.json.encode(data).decode(), id)


def event(version: int, id: str = "", after: State = State.RUNNING) -> StreamBlock:
    return block(item(version, after), id)


def mark(id: str) -> StreamBlock:
    return StreamBlock("message", "", id)


Script = Sequence[Sequence[StreamBlock | Exception]]


class Scripted:
    """A transport whose connections give what the script says, one after the other."""

    def __init__(self, script: Script) -> None:
        self._script = iter(script)
        self.calls: list[Call[Any]] = []

    @property
    def last_ids(self) -> list[str | None]:
        return [call.headers.get("Last-Event-ID") for call in self.calls]

    def send(self, call: Call[Any]) -> Reply:
        raise NotImplementedError

    def stream(self, call: Call[Any]) -> Generator[StreamBlock, None, None]:
        self.calls.append(call)
        for one in next(self._script):
            if isinstance(one, Exception):
                raise one
            yield one

    def close(self) -> None: ...


class AsyncScripted(Scripted):
    async def send(self, call: Call[Any]) -> Reply:  # type: ignore[override]
        raise NotImplementedError

    async def stream(self, call: Call[Any]) -> AsyncGenerator[StreamBlock, None]:  # type: ignore[override]
        for one in super().stream(call):
            yield one

    async def close(self) -> None: ...  # type: ignore[override]


def client_of(script: Script, slept: list[float] | None = None) -> tuple[Client, Scripted]:
    transport = Scripted(script)
    sleep = ([] if slept is None else slept).append
    return Client(transport=transport, rng=random.Random(1), patience=5, sleep=sleep), transport


def read(script: Script, count: int) -> tuple[list[int], Scripted]:
    client, transport = client_of(script)
    events = client.events()
    return [next(events).version for _ in range(count)], transport


def test_a_lost_connection_goes_on_after_the_last_id() -> None:
    versions, transport = read([[mark("a"), event(1), mark("b"), LOST], [event(2), mark("c")], [event(3)]], 3)
    assert versions == [1, 2, 3]
    assert transport.last_ids == [None, "b", "c"]


def test_events_that_come_again_are_left_out() -> None:
    versions, _ = read([[mark("a"), event(1), event(2), LOST], [event(1), event(2), event(3)]], 3)
    assert versions == [1, 2, 3]


def test_what_a_slow_client_missed_is_asked_for_again() -> None:
    missed = block(MissedEvents("slow", "b"), event="missed")
    versions, transport = read([[event(1), mark("b"), missed, event(9)], [event(2), event(3)]], 3)
    assert versions == [1, 2, 3]
    assert transport.last_ids == [None, "b"]


def test_what_is_no_longer_kept_is_an_error() -> None:
    client, _ = client_of([[block(MissedEvents("gone", "b", AT), event="missed")]])
    with pytest.raises(JournalGone, match="2026-01-01"):
        next(client.events())


def test_a_server_that_is_never_reached_is_an_error_after_the_patience() -> None:
    client, transport = client_of([[LOST]] * 100)
    with pytest.raises(ServerUnavailable):
        # The clock of a blocking client does not move while its sleep is replaced: patience 0 is over at once.
        next(Client(transport=transport, patience=0, sleep=lambda _: None).events())
    assert len(transport.calls) == 1
    client.close()


def test_a_server_that_was_reached_once_is_tried_for_ever_and_ever_later() -> None:
    slept: list[float] = []
    client, _ = client_of([[event(1), LOST], *[[LOST]] * 30, [event(2)]], slept)
    events = client.events()
    assert [next(events).version, next(events).version] == [1, 2]
    assert len(slept) == 31
    assert max(slept) <= 5.0
    assert slept[-1] > slept[0]


def test_a_key_that_is_no_longer_good_ends_the_iteration() -> None:
    client, _ = client_of([[event(1), LOST], [Unauthorized("revoked")]])
    events = client.events()
    next(events)
    with pytest.raises(Unauthorized):
        next(events)


def test_the_filters_are_part_of_every_connection() -> None:
    client, transport = client_of([[LOST], [event(1)]])
    next(client.events(types=["add", "report"], states=[State.FAILED], items=True, since=AT))
    wanted = "type=add%2Creport&state=failed&items=true&since=2026-01-01T00%3A00%3A00%2B00%3A00"
    assert [call.query for call in transport.calls] == [wanted] * 2


def line(text: str) -> StreamBlock:
    return block(LogLine(AT, "stdout", text), event="log")


def test_the_stream_of_a_job_ends_with_it_and_repeats_no_line() -> None:
    script: Script = [
        [event(1), mark("a"), line("one"), LOST],
        [line("one"), line("two"), event(2, after=State.SUCCEEDED)],
    ]
    client, transport = client_of(script)
    updates = [one.text if isinstance(one, LogLine) else getattr(one, "version", None) for one in client.stream(JOB)]
    assert updates == [1, "one", "two", 2]
    assert transport.calls[0].path == f"/v1/jobs/{JOB}/events"


def test_the_stream_of_a_job_whose_events_are_gone_ends() -> None:
    client, _ = client_of([[StreamBlock("end", '{"state":"failed"}', "")]])
    assert list(client.stream(JOB)) == []


def test_the_client_for_asyncio_does_the_same() -> None:
    async def run() -> list[int]:
        transport = AsyncScripted([[event(1), mark("a"), LOST], [event(1), event(2, after=State.FAILED)]])
        client = AsyncClient(transport=transport, patience=5)
        return [update.version async for update in client.stream(JOB) if isinstance(update, EventItem)]

    assert asyncio.run(run()) == [1, 2]
