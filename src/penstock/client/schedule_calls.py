"""What the clients ask of a server about schedules: one function per endpoint, each giving a `Call`."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.client.calls import Call, path_of, query_of
from penstock.model.wire.jobs import JobItem
from penstock.model.wire.schedules import (
    BackfillRequest,
    BackfillResponse,
    PreviewResponse,
    ScheduleItem,
    SchedulePage,
    TickItem,
    TickPage,
)


def put(body: Mapping[str, object]) -> Call[ScheduleItem]:
    """Repeatable unless a repeat would be refused as a conflict with the schedule that the first one made."""
    return Call(
        "POST",
        "/v1/schedules",
        _SCHEDULE,
        body=msgspec.json.encode(body),
        repeatable=body.get("on_conflict") != "raise",
    )


def page(cursor: str | None, limit: int | None) -> Call[SchedulePage]:
    return Call(
        "GET", "/v1/schedules", msgspec.json.Decoder(SchedulePage).decode, query=query_of(cursor=cursor, limit=limit)
    )


def get(name: str) -> Call[ScheduleItem]:
    return Call("GET", path_of("schedules", name), _SCHEDULE)


def change(name: str, body: Mapping[str, object]) -> Call[ScheduleItem]:
    return Call("PATCH", path_of("schedules", name), _SCHEDULE, body=msgspec.json.encode(body))


def delete(name: str) -> Call[None]:
    """Not repeatable: the second one finds nothing to delete."""
    return Call("DELETE", path_of("schedules", name), lambda _: None, repeatable=False)


def pause(name: str) -> Call[ScheduleItem]:
    return Call("POST", path_of("schedules", name, "pause"), _SCHEDULE)


def resume(name: str) -> Call[ScheduleItem]:
    return Call("POST", path_of("schedules", name, "resume"), _SCHEDULE)


def trigger(name: str) -> Call[JobItem]:
    """Not repeatable: each one makes a new job."""
    return Call("POST", path_of("schedules", name, "trigger"), msgspec.json.Decoder(JobItem).decode, repeatable=False)


def backfill(name: str, from_at: datetime, to_at: datetime) -> Call[tuple[TickItem, ...]]:
    """Repeatable because a tick that has a job gets no second one."""
    body = msgspec.json.encode(BackfillRequest(from_at=from_at, to_at=to_at))
    return Call("POST", path_of("schedules", name, "backfill"), _backfilled, body=body)


def preview(name: str, count: int) -> Call[tuple[datetime, ...]]:
    return Call("GET", path_of("schedules", name, "preview"), _instants, query=query_of(count=count))


def preview_of(body: Mapping[str, object]) -> Call[tuple[datetime, ...]]:
    return Call("POST", "/v1/schedules/preview", _instants, body=msgspec.json.encode(body))


def ticks(name: str, cursor: str | None, limit: int | None) -> Call[TickPage]:
    query = query_of(cursor=cursor, limit=limit)
    return Call("GET", path_of("schedules", name, "ticks"), msgspec.json.Decoder(TickPage).decode, query=query)


_SCHEDULE = msgspec.json.Decoder(ScheduleItem).decode


def _instants(raw: bytes) -> tuple[datetime, ...]:
    return msgspec.json.decode(raw, type=PreviewResponse).ticks


def _backfilled(raw: bytes) -> tuple[TickItem, ...]:
    return msgspec.json.decode(raw, type=BackfillResponse).ticks
