"""The live digest of the whole system, for pages: as a stream, or once."""

from functools import partial

from msgspec import Struct

from penstock.api.operation import Answer, operation
from penstock.api.request import JSON, AnyReply, ApiRequest, json_reply
from penstock.api.stream_reply import ACCEPT, EVENT_STREAM, StreamReply, wants_stream
from penstock.model.wire.live import LiveDigest


class LiveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`once` answers with one digest, whatever the request accepts."""

    once: bool = False


@operation(
    "GET /v1/live",
    {200: Answer("A digest; or a stream of them, at most one a second.", LiveDigest, (JSON, EVENT_STREAM))},
    query=LiveQuery,
    headers=(ACCEPT,),
)
async def watch_live(call: ApiRequest) -> AnyReply:
    """Watch the whole system: jobs by state and queue, workers, fleets. A slow client gets the newest digest only."""
    if call.query(LiveQuery).once or not wants_stream(call):
        return json_reply(200, await call.live.read(), ((b"cache-control", b"no-store"),))
    stream = call.live.open(call.readmit)
    return StreamReply(call, stream, partial(call.live.close, stream))


OPERATIONS = (watch_live,)
