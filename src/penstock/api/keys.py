"""API keys over HTTP, for admins: making, listing, rotating and revoking them.

These need a key on every server: one that was made while a server needed none would still be good on the day that it is
exposed.
"""

from penstock.api.operation import Answer, operation
from penstock.api.request import NO_CONTENT, ApiReply, ApiRequest, json_reply
from penstock.model.wire.keys import KeyList, KeyRequest, MadeKey, RevokedKey, RotateRequest, key_item

MADE = Answer("The key; its secret is shown here and never again.", MadeKey)


@operation("GET /v1/keys", {200: Answer("Every key that was not revoked, by name.", KeyList)}, needs_key=True)
async def list_keys(call: ApiRequest) -> ApiReply:
    """List API keys, without their secrets."""
    return json_reply(200, KeyList(tuple(map(key_item, await call.engine.keys.list()))))


@operation("POST /v1/keys", {201: MADE}, body=KeyRequest, needs_key=True)
async def create_key(call: ApiRequest) -> ApiReply:
    """Make an API key. Each request makes one."""
    return json_reply(201, await call.engine.keys.create(await call.json(KeyRequest)))


@operation("POST /v1/keys/{key}/rotate", {201: MADE}, body=RotateRequest, refusals=(404,), needs_key=True)
async def rotate_key(call: ApiRequest) -> ApiReply:
    """Make an API key with the terms of another, which expires after a grace."""
    key = call.path("key")
    return json_reply(201, await call.engine.keys.rotate(key, await call.json(RotateRequest)))


@operation(
    "DELETE /v1/keys/{key}",
    {204: Answer("Revoked, for good."), 202: Answer("Revoked; some shards are still to be told.", RevokedKey)},
    refusals=(404,),
    needs_key=True,
)
async def revoke_key(call: ApiRequest) -> ApiReply:
    """Revoke an API key: at once here, within a second at every other server. May be repeated.

    The answer 202 names the shards that do not know it yet. They are told as soon as they answer; until then a server
    that starts and reaches only them lets the key in.
    """
    key = call.path("key")
    unreached = await call.engine.keys.revoke(key)
    return json_reply(202, RevokedKey(key, unreached)) if unreached else NO_CONTENT


OPERATIONS = (list_keys, create_key, rotate_key, revoke_key)
