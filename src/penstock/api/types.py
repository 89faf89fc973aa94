"""Job types: those that are declared, under which names they are run, and taking one out of use."""

from msgspec.structs import replace

from penstock.api.operation import Answer, operation
from penstock.api.request import NO_CONTENT, ApiReply, ApiRequest, json_reply
from penstock.model.wire.fleets import shown
from penstock.model.wire.types import AliasRequest, RetiredType, RetireRequest, TypeItem, TypeList


@operation("GET /v1/types", {200: Answer("Every declared type, by name.", TypeList)})
async def list_types(call: ApiRequest) -> ApiReply:
    """List the job types that workers have declared."""
    return json_reply(200, TypeList(tuple(map(_shown, await call.engine.types.list()))))


@operation(
    "PUT /v1/types/{type}/alias", {200: Answer("The type that its jobs are run as.", TypeItem)}, body=AliasRequest
)
async def alias_type(call: ApiRequest) -> ApiReply:
    """Let jobs and submits of one type be run as another: after a handler was renamed. May be repeated."""
    request = await call.json(AliasRequest)
    return json_reply(200, _shown(await call.engine.types.alias(call.path("type"), request.run_as)))


@operation("DELETE /v1/types/{type}/alias", {204: Answer("It is run as itself again.")}, refusals=(404,))
async def remove_alias(call: ApiRequest) -> ApiReply:
    """Let a type be run by its own handler again."""
    await call.engine.types.remove_alias(call.path("type"))
    return NO_CONTENT


@operation(
    "POST /v1/types/{type}/retire",
    {200: Answer("What is left of it.", RetiredType)},
    body=RetireRequest,
    refusals=(404,),
)
async def retire_type(call: ApiRequest) -> ApiReply:
    """Accept no more jobs of a type; those that wait stay, or are cancelled. May be repeated."""
    request = await call.json(RetireRequest)
    return json_reply(200, await call.engine.types.retire(call.path("type"), cancel=request.cancel))


def _shown(item: TypeItem) -> TypeItem:
    """A type as it may be looked at: the environment of its fleet may hold secrets."""
    return item if item.fleet is None else replace(item, fleet=shown(item.fleet))


OPERATIONS = (list_types, alias_type, remove_alias, retire_type)
