"""Shards: how they are; and changing the map while everything runs, which is for admins."""

from msgspec import Struct
from msgspec.structs import replace

from penstock.api.operation import Answer, operation
from penstock.api.request import NO_CONTENT, ApiReply, ApiRequest, json_reply
from penstock.model.keys import KeyScope
from penstock.model.wire.shards import ShardChange, ShardItem, ShardList, ShardRequest

DOES_NOT_ANSWER = "it does not answer, or is set down; its address and the reason are for admins"


class RemoveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether ended jobs on the shard may become unreadable."""

    force: bool = False


@operation("GET /v1/shards", {200: Answer("Every shard, by number.", ShardList)})
async def list_shards(call: ApiRequest) -> ApiReply:
    """List shards: what is wanted of each, whether it answers, and its jobs by state. Addresses are for admins."""
    found = await call.engine.shards.list()
    return json_reply(200, ShardList(tuple(found if call.may(KeyScope.ADMIN) else map(_without_address, found))))


@operation(
    "POST /v1/shards",
    {201: Answer("The shard, added.", ShardItem, headers=("Location",))},
    body=ShardRequest,
    refusals=(409,),
)
async def add_shard(call: ApiRequest) -> ApiReply:
    """Add a shard. It is opened first; every process uses it within about a second."""
    added = await call.engine.shards.add(await call.json(ShardRequest))
    return json_reply(201, added, ((b"location", b"/v1/shards/%d" % added.number),))


@operation(
    "PATCH /v1/shards/{shard}",
    {200: Answer("The shard, changed.", ShardItem)},
    body=ShardChange,
    refusals=(404, 409),
)
async def update_shard(call: ApiRequest) -> ApiReply:
    """Change a shard's weight, its state, or whether keys may live there."""
    number = call.path("shard")
    return json_reply(200, await call.engine.shards.change(number, await call.json(ShardChange)))


@operation(
    "DELETE /v1/shards/{shard}",
    {204: Answer("Gone from the map; its database is left as it is.")},
    query=RemoveQuery,
    refusals=(404, 409),
)
async def remove_shard(call: ApiRequest) -> ApiReply:
    """Remove a drained shard from the map."""
    query = call.query(RemoveQuery)
    await call.engine.shards.remove(call.path("shard"), force=query.force)
    return NO_CONTENT


def _without_address(shard: ShardItem) -> ShardItem:
    """A shard as it may be looked at without being an admin: the reason may name its address too."""
    return replace(shard, url=None, reason=None if shard.well else DOES_NOT_ANSWER)


OPERATIONS = (list_shards, add_shard, update_shard, remove_shard)
