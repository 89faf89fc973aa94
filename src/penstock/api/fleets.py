"""Fleets: how they are and why; and what operators change while everything runs, which is for admins."""

from penstock.api.operation import Answer, operation
from penstock.api.request import ApiReply, ApiRequest, json_reply
from penstock.model.wire.fleets import FleetChange, FleetItem, FleetList, ScaleRequest


@operation("GET /v1/fleets", {200: Answer("Every fleet, by name.", FleetList)})
async def list_fleets(call: ApiRequest) -> ApiReply:
    """List fleets: which queues each serves, its workers by state, how many are aimed at and why."""
    return json_reply(200, FleetList(tuple(await call.engine.fleets.list())))


@operation("GET /v1/fleets/{fleet}", {200: Answer("The fleet.", FleetItem)}, refusals=(404,))
async def get_fleet(call: ApiRequest) -> ApiReply:
    """Look at a fleet and its latest decisions."""
    return json_reply(200, await call.engine.fleets.get(call.path("fleet")))


@operation(
    "PATCH /v1/fleets/{fleet}", {200: Answer("The fleet, changed.", FleetItem)}, body=FleetChange, refusals=(404,)
)
async def update_fleet(call: ApiRequest) -> ApiReply:
    """Change a fleet's bounds or policy; laid over what is declared, until it is reset."""
    name = call.path("fleet")
    return json_reply(200, await call.engine.fleets.change(name, await call.json(FleetChange)))


@operation("POST /v1/fleets/{fleet}/pause", {200: Answer("The fleet, paused.", FleetItem)}, refusals=(404,))
async def pause_fleet(call: ApiRequest) -> ApiReply:
    """Leave a fleet as it is: no worker is started or stopped."""
    return json_reply(200, await call.engine.fleets.pause(call.path("fleet"), paused=True))


@operation("POST /v1/fleets/{fleet}/resume", {200: Answer("The fleet, resumed.", FleetItem)}, refusals=(404,))
async def resume_fleet(call: ApiRequest) -> ApiReply:
    """Look after a fleet again."""
    return json_reply(200, await call.engine.fleets.pause(call.path("fleet"), paused=False))


@operation(
    "POST /v1/fleets/{fleet}/scale",
    {200: Answer("The fleet, scaled by hand or left to its policy again.", FleetItem)},
    body=ScaleRequest,
    refusals=(404,),
)
async def scale_fleet(call: ApiRequest) -> ApiReply:
    """Let a fleet have so many workers, whatever its policy says; `auto` leaves that to the policy again."""
    name, count = call.path("fleet"), (await call.json(ScaleRequest)).count
    return json_reply(200, await call.engine.fleets.scale(name, None if count == "auto" else count))


OPERATIONS = (list_fleets, get_fleet, update_fleet, pause_fleet, resume_fleet, scale_fleet)
