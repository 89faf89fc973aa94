"""Schedules through both clients: what is asked of which endpoint, in the wire's words, and what may be repeated."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from penstock.client.options import changes_body, preview_body, schedule_body
from penstock.model.errors import Conflict, Invalid, InvalidParams, ServerUnavailable
from penstock.model.ids import JobId
from penstock.model.retry import Retry
from penstock.model.schedule import Misfire, Overlap
from penstock.model.wire.jobs import SubmitRequest
from penstock.model.wire.schedules import (
    BackfillRequest,
    BackfillResponse,
    OnConflict,
    PreviewRequest,
    PreviewResponse,
    ScheduleBody,
    ScheduleChange,
    ScheduleItem,
    SchedulePage,
    ScheduleRequest,
    TickItem,
    TickPage,
)
from tests.unit.test_client_protocol import ID, NOW, Server, answer, item, problem, unreachable

LATER = NOW + timedelta(days=1)


def schedule(name: str = "nightly", **changes: Any) -> ScheduleItem:
    known: dict[str, Any] = {field: None for field in ScheduleItem.__struct_fields__} | {
        "name": name,
        "type": "report",
        "params": msgspec.Raw(b"{}"),
        "interval": 60.0,
        "after_completion": False,
        "jitter_seconds": 0.0,
        "tags": (),
        "misfire": Misfire.RUN_ONCE,
        "misfire_cap": 100,
        "misfire_grace_seconds": 60.0,
        "overlap": Overlap.ALLOW,
        "paused": False,
        "version": 1,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return ScheduleItem(**known | changes)


def asked(server: Server) -> list[str]:
    return [f"{request.method} {request.url.raw_path.decode()}" for request in server.requests]


Calls = Callable[[Any], Any]

CALLS: list[tuple[str, object, Calls]] = [
    ("POST /v1/schedules", schedule(), lambda client: client.schedule("nightly", "report", interval=60)),
    ("GET /v1/schedules/nightly", schedule(), lambda client: client.get_schedule("nightly")),
    ("PATCH /v1/schedules/nightly", schedule(), lambda client: client.update_schedule("nightly", interval=90)),
    ("POST /v1/schedules/nightly/pause", schedule(), lambda client: client.pause_schedule("nightly")),
    ("POST /v1/schedules/nightly/resume", schedule(), lambda client: client.resume_schedule("nightly")),
    ("POST /v1/schedules/nightly/trigger", item(), lambda client: client.trigger("nightly")),
    (
        "POST /v1/schedules/nightly/backfill",
        BackfillResponse((TickItem(NOW, ID, None),)),
        lambda client: client.backfill("nightly", NOW, LATER),
    ),
    ("GET /v1/schedules/nightly/preview?count=3", PreviewResponse((NOW,)), lambda client: client.preview("nightly", 3)),
    ("POST /v1/schedules/preview", PreviewResponse((NOW,)), lambda client: client.preview_of(3, cron="@daily")),
    ("GET /v1/schedules/a%2Fb", schedule(), lambda client: client.get_schedule("a/b")),
]


@pytest.mark.parametrize(("target", "given", "call"), CALLS, ids=[target for target, _, _ in CALLS])
async def test_both_clients_ask_the_same_endpoint_and_read_the_same_answer(
    target: str, given: object, call: Calls
) -> None:
    server, other = Server(answer(given)), Server(answer(given))
    with server.client() as client:
        told = call(client)
    async with other.async_client() as async_client:
        told_async = await call(async_client)
    assert asked(server) == asked(other) == [target]
    assert msgspec.json.encode(told) == msgspec.json.encode(told_async)
    assert [request.content for request in server.requests] == [request.content for request in other.requests]


async def test_deleting_answers_nothing() -> None:
    server = Server(lambda _: httpx2.Response(204))
    with server.client() as client:
        client.delete_schedule("nightly")
    async with server.async_client() as async_client:
        await async_client.delete_schedule("nightly")
    assert asked(server) == ["DELETE /v1/schedules/nightly"] * 2


async def test_schedules_are_listed_page_by_page() -> None:
    first, second = SchedulePage((schedule("a"), schedule("b")), "b"), SchedulePage((schedule("c"),), None)
    server, other = (Server(answer(first), answer(second)) for _ in range(2))
    with server.client() as client:
        assert [one.name for one in client.schedules(page_size=2)] == ["a", "b", "c"]
    async with other.async_client() as async_client:
        assert [one.name async for one in async_client.schedules(page_size=2)] == ["a", "b", "c"]
    assert asked(server) == asked(other) == ["GET /v1/schedules?limit=2", "GET /v1/schedules?cursor=b&limit=2"]


async def test_ticks_are_listed_page_by_page() -> None:
    ran, skipped = TickItem(LATER, JobId(ID), None), TickItem(NOW, None, "overlap")
    first, second = TickPage((ran,), "x"), TickPage((skipped,), None)
    server, other = (Server(answer(first), answer(second)) for _ in range(2))
    with server.client() as client:
        assert list(client.ticks("nightly")) == [ran, skipped]
    async with other.async_client() as async_client:
        assert [one async for one in async_client.ticks("nightly")] == [ran, skipped]
    assert (
        asked(server)
        == asked(other)
        == [
            "GET /v1/schedules/nightly/ticks",
            "GET /v1/schedules/nightly/ticks?cursor=x",
        ]
    )


def test_everything_that_can_be_said_is_what_the_server_reads() -> None:
    body = schedule_body(
        "nightly",
        "report",
        {"rows": 7},
        {
            "cron": "0 2 * * *",
            "timezone": "Europe/Berlin",
            "start_at": NOW,
            "end_at": LATER,
            "jitter": timedelta(seconds=30),
            "queue": "slow",
            "priority": 9,
            "retry": Retry.none(),
            "timeout": 60,
            "tags": ("money",),
            "misfire": Misfire.RUN_ALL,
            "misfire_cap": 5,
            "misfire_grace": timedelta(minutes=2),
            "overlap": "queue_one",
            "paused": True,
        },
    )
    read = msgspec.json.decode(msgspec.json.encode(body), type=ScheduleRequest)
    assert (read.cron, read.timezone, read.start_at, read.end_at) == ("0 2 * * *", "Europe/Berlin", NOW, LATER)
    assert (read.jitter_seconds, read.timeout_seconds, read.misfire_grace_seconds) == (30, 60, 120)
    assert (read.misfire, read.misfire_cap, read.overlap) == (Misfire.RUN_ALL, 5, Overlap.QUEUE_ONE)
    assert (read.queue, read.priority, read.retry_policy, read.tags) == ("slow", 9, Retry.none(), ("money",))
    assert (bytes(read.params), read.paused) == (b'{"rows":7}', True)


def test_what_is_not_said_is_not_sent() -> None:
    assert set(schedule_body("poll", "fetch", None, {"interval": 60, "queue": None})) == {
        "name",
        "type",
        "params",
        "interval",
    }


def test_every_field_of_the_wire_can_be_said() -> None:
    spoken = {
        "interval": 1, "after_completion": True, "cron": "@daily", "timezone": "UTC", "start_at": NOW, "end_at": NOW,
        "jitter": 1, "queue": "q", "priority": 1, "retry": "fixed", "timeout": 1, "tags": ["t"], "misfire": "skip",
        "misfire_cap": 1, "misfire_grace": 1, "overlap": "skip", "paused": True, "type": "report", "params": {},
    }  # fmt: skip
    said = set(changes_body(spoken))  # type: ignore[arg-type]
    assert said == set(ScheduleChange.__struct_fields__) == set(ScheduleBody.__struct_fields__)


def test_a_change_of_none_is_said() -> None:
    raw = msgspec.json.encode(changes_body({"queue": None, "end_at": None, "tags": ()}))
    assert msgspec.json.decode(raw) == {"queue": None, "end_at": None, "tags": []}
    read = msgspec.json.decode(raw, type=ScheduleChange)
    assert (read.queue, read.interval) == (None, msgspec.UNSET)


def test_a_preview_asks_in_the_words_of_the_server() -> None:
    raw = msgspec.json.encode(preview_body({"interval": timedelta(minutes=1), "cron": None}, 3))
    assert msgspec.json.decode(raw, type=PreviewRequest) == PreviewRequest(interval=60.0, count=3)


def test_a_backfill_asks_in_the_words_of_the_server() -> None:
    server = Server(answer(BackfillResponse(())))
    with server.client() as client:
        assert client.backfill("nightly", NOW, LATER) == ()
    (request,) = server.requests
    assert msgspec.json.decode(request.content, type=BackfillRequest) == BackfillRequest(from_at=NOW, to_at=LATER)


def test_wrong_words_are_refused_before_anything_is_sent() -> None:
    server = Server(answer(schedule()))
    with server.client() as client:
        with pytest.raises(Invalid, match=r"start_at: .* has no time zone"):
            client.schedule("x", "report", interval=60, start_at=datetime(2030, 1, 1))  # noqa: DTZ001
        with pytest.raises(Invalid, match="no option evry"):
            client.schedule("x", "report", evry=60)  # type: ignore[call-arg]
        with pytest.raises(Invalid, match="list of words"):
            client.schedule("x", "report", interval=60, tags="money")
        with pytest.raises(InvalidParams, match="report"):
            client.schedule("x", "report", {"at": object()}, interval=60)
    assert server.requests == []


@pytest.mark.parametrize("choice", list(OnConflict))
def test_a_schedule_is_sent_again_only_where_a_repeat_is_harmless(choice: OnConflict) -> None:
    server = Server(unreachable(), answer(schedule()))
    with server.client() as client:
        if choice is OnConflict.RAISE:
            with pytest.raises(ServerUnavailable):
                client.schedule("nightly", "report", interval=60, on_conflict=choice)
        else:
            client.schedule("nightly", "report", interval=60, on_conflict=choice)
    assert [body["on_conflict"] for body in server.bodies] == [choice] * len(server.requests)


@pytest.mark.parametrize("call", [lambda client: client.trigger("a"), lambda client: client.delete_schedule("a")])
def test_a_trigger_and_a_delete_are_never_sent_twice(call: Calls) -> None:
    server = Server(unreachable())
    with server.client() as client, pytest.raises(ServerUnavailable):
        call(client)
    assert len(server.requests) == 1


def test_what_the_server_refuses_is_raised_as_its_error() -> None:
    server = Server(problem(409, "conflict", "there is a schedule 'nightly'"))
    with server.client() as client, pytest.raises(Conflict, match="nightly"):
        client.schedule("nightly", "report", interval=60)


def test_an_interval_goes_with_a_submit() -> None:
    server = Server(answer(item(schedule="made-for-it", interval=90.0), 201))
    with server.client() as client:
        job = client.submit("add", interval=timedelta(minutes=1, seconds=30))
    assert (job.schedule, job.interval) == ("made-for-it", 90.0)
    assert msgspec.json.decode(server.requests[0].content, type=SubmitRequest).interval == 90


def test_times_come_back_aware() -> None:
    server = Server(answer(PreviewResponse((NOW,))))
    with server.client() as client:
        assert client.preview("nightly")[0].utcoffset() == UTC.utcoffset(None)
