"""Schedules: create, look at, change, pause, trigger, preview, backfill, delete."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from penstock.api.access import show_job
from penstock.api.operation import Answer, operation
from penstock.api.request import NO_CONTENT, ApiReply, ApiRequest, Headers, json_reply
from penstock.engine.schedules import Schedules
from penstock.model.clock import Instant, utc
from penstock.model.errors import Invalid
from penstock.model.schedule import Schedule
from penstock.model.wire.jobs import JobItem
from penstock.model.wire.schedules import (
    BackfillRequest,
    BackfillResponse,
    PreviewCount,
    PreviewRequest,
    PreviewResponse,
    ScheduleBody,
    ScheduleChange,
    ScheduleItem,
    SchedulePage,
    ScheduleRequest,
    TickPage,
    schedule_item,
    tick_item,
)
from penstock.model.workers import Name

PageLimit = Annotated[int, Meta(ge=1, le=10_000)]


class SchedulesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page, and how many on it: never more than `limits.page_jobs`, whatever `limit` says."""

    cursor: Name | None = None
    limit: PageLimit = 50


class TicksQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page, and how many on it: never more than `limits.page_jobs`, whatever `limit` says."""

    cursor: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    limit: PageLimit = 50


class PreviewQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many ticks to tell."""

    count: PreviewCount = 10


@operation(
    "POST /v1/schedules",
    {
        201: Answer("The schedule, made.", ScheduleItem, headers=("Location",)),
        200: Answer("The schedule of that name, as `on_conflict` left it.", ScheduleItem, headers=("Location",)),
    },
    body=ScheduleRequest,
    refusals=(409, 413),
)
async def create_schedule(call: ApiRequest) -> ApiReply:
    """Make a schedule. One of that name is left, replaced or refused, as `on_conflict` says."""
    schedule, made = await _schedules(call).create(await call.json(ScheduleRequest))
    return _schedule_reply(schedule, made=made)


@operation("GET /v1/schedules", {200: Answer("A page of schedules, by name.", SchedulePage)}, query=SchedulesQuery)
async def list_schedules(call: ApiRequest) -> ApiReply:
    """List schedules, by name."""
    query = call.query(SchedulesQuery)
    found, cursor = await _schedules(call).list(query.cursor, _page(call, query.limit))
    return json_reply(200, SchedulePage(tuple(map(schedule_item, found)), cursor))


@operation("POST /v1/schedules/preview", {200: Answer("The next ticks.", PreviewResponse)}, body=PreviewRequest)
async def preview_unsaved(call: ApiRequest) -> ApiReply:
    """Tell when a schedule would tick, without making it."""
    request = await call.json(PreviewRequest)
    ticks = await _schedules(call).preview_of(request, request.count)
    return json_reply(200, PreviewResponse(tuple(ticks)))


@operation("GET /v1/schedules/{schedule}", {200: Answer("The schedule.", ScheduleItem)}, refusals=(404,))
async def get_schedule(call: ApiRequest) -> ApiReply:
    """Look at a schedule."""
    return _item_reply(await _schedules(call).get(call.path("schedule")))


@operation(
    "PUT /v1/schedules/{schedule}",
    {
        201: Answer("The schedule, made.", ScheduleItem, headers=("Location",)),
        200: Answer("The schedule, replaced.", ScheduleItem, headers=("Location",)),
    },
    body=ScheduleBody,
    refusals=(409,),
)
async def replace_schedule(call: ApiRequest) -> ApiReply:
    """Make a schedule what the body says, whether there is one of that name or not. May be repeated."""
    name = call.path("schedule")
    schedule, made = await _schedules(call).replace(name, await call.json(ScheduleBody))
    return _schedule_reply(schedule, made=made)


@operation(
    "PATCH /v1/schedules/{schedule}",
    {200: Answer("The schedule, changed.", ScheduleItem)},
    body=ScheduleChange,
    refusals=(404, 409),
)
async def update_schedule(call: ApiRequest) -> ApiReply:
    """Change what is said and leave the rest."""
    name = call.path("schedule")
    return _item_reply(await _schedules(call).update(name, await call.json(ScheduleChange)))


@operation("DELETE /v1/schedules/{schedule}", {204: Answer("Gone, with its history; its jobs stay.")}, refusals=(404,))
async def delete_schedule(call: ApiRequest) -> ApiReply:
    """Remove a schedule and its history; its jobs stay."""
    await _schedules(call).delete(call.path("schedule"))
    return NO_CONTENT


@operation(
    "POST /v1/schedules/{schedule}/pause",
    {200: Answer("The schedule, paused.", ScheduleItem)},
    refusals=(404, 409),
)
async def pause_schedule(call: ApiRequest) -> ApiReply:
    """Let no tick become a job until the schedule is resumed."""
    return _item_reply(await _schedules(call).pause(call.path("schedule")))


@operation(
    "POST /v1/schedules/{schedule}/resume",
    {200: Answer("The schedule, resumed.", ScheduleItem)},
    refusals=(404, 409),
)
async def resume_schedule(call: ApiRequest) -> ApiReply:
    """Let a schedule go on; its misfire policy decides about the ticks that came meanwhile."""
    return _item_reply(await _schedules(call).resume(call.path("schedule")))


@operation(
    "POST /v1/schedules/{schedule}/trigger",
    {201: Answer("The job.", JobItem, headers=("Location",))},
    refusals=(404, 409),
)
async def trigger_schedule(call: ApiRequest) -> ApiReply:
    """Make a job now, as a tick of its own."""
    job = await _schedules(call).trigger(call.path("schedule"))
    return json_reply(201, await show_job(call, job), _location(f"/v1/jobs/{job.id}"))


@operation(
    "POST /v1/schedules/{schedule}/backfill",
    {200: Answer("The ticks that got a job now.", BackfillResponse)},
    body=BackfillRequest,
    refusals=(404, 409),
)
async def backfill_schedule(call: ApiRequest) -> ApiReply:
    """Give a job to each tick of a span of time that has neither job nor record. May be repeated."""
    name, request = call.path("schedule"), await call.json(BackfillRequest)
    filled = await _schedules(call).backfill(name, request.from_at, request.to_at)
    return json_reply(200, BackfillResponse(tuple(map(tick_item, filled))))


@operation(
    "GET /v1/schedules/{schedule}/preview",
    {200: Answer("The next ticks.", PreviewResponse)},
    query=PreviewQuery,
    refusals=(404,),
)
async def preview_schedule(call: ApiRequest) -> ApiReply:
    """Tell when a schedule ticks next."""
    name, query = call.path("schedule"), call.query(PreviewQuery)
    return json_reply(200, PreviewResponse(tuple(await _schedules(call).preview(name, query.count))))


@operation(
    "GET /v1/schedules/{schedule}/ticks",
    {200: Answer("A page of the history, newest first.", TickPage)},
    query=TicksQuery,
    refusals=(404,),
)
async def list_ticks(call: ApiRequest) -> ApiReply:
    """Tell what became of a schedule's ticks: a job, or the reason why not."""
    name, query = call.path("schedule"), call.query(TicksQuery)
    limit = _page(call, query.limit)
    records = await _schedules(call).history(name, _instant_of(query.cursor), limit)
    cursor = records[-1].at.isoformat().replace("+00:00", "Z") if len(records) == limit else None
    return json_reply(200, TickPage(tuple(map(tick_item, records)), cursor))


def _schedules(call: ApiRequest) -> Schedules:
    """Those that the key is for."""
    return call.engine.schedules.within(None if call.key is None else call.key.queues)


def _page(call: ApiRequest, limit: int) -> int:
    return min(limit, call.engine.settings.limits.page_jobs)


def _instant_of(cursor: str | None) -> datetime | None:
    """Where a page of the history begins; Invalid for a cursor that no page gave."""
    try:
        return None if cursor is None else utc("cursor", msgspec.convert(cursor, Instant))
    except (msgspec.ValidationError, Invalid):
        raise Invalid(f"query: cursor: {cursor!r} is not from an earlier page") from None


def _schedule_reply(schedule: Schedule, *, made: bool) -> ApiReply:
    return json_reply(201 if made else 200, schedule_item(schedule), _location(f"/v1/schedules/{schedule.name}"))


def _item_reply(schedule: Schedule) -> ApiReply:
    return json_reply(200, schedule_item(schedule))


def _location(path: str) -> Headers:
    return ((b"location", path.encode()),)


OPERATIONS = (
    create_schedule,
    list_schedules,
    preview_unsaved,
    get_schedule,
    replace_schedule,
    update_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
    backfill_schedule,
    preview_schedule,
    list_ticks,
)
