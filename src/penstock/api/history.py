"""History: what happened in each step of a span of time, and how many jobs there were."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from penstock.api.operation import Answer, operation
from penstock.api.request import ApiReply, ApiRequest, InstantText, json_reply, read_instant
from penstock.model.clock import seconds
from penstock.model.names import Name
from penstock.model.wire.history import HistoryReport


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """From and to when (an hour up to now), in steps of how many seconds, and of which jobs."""

    since: InstantText | UnsetType = field(name="from", default=UNSET)
    until: InstantText | UnsetType = field(name="to", default=UNSET)
    step: Annotated[float, Meta(ge=10, le=604_800, description="Seconds; a multiple of 10.")] | UnsetType = UNSET
    queue: Name | None = None
    type: Name | None = None


@operation("GET /v1/history", {200: Answer("Steps, oldest first.", HistoryReport)}, query=HistoryQuery, refusals=(409,))
async def read_history(call: ApiRequest) -> ApiReply:
    """Read what happened and how many jobs there were, in at most 400 steps."""
    query = call.query(HistoryQuery)
    step = None if query.step is UNSET else seconds(query.step)
    since = None if query.since is UNSET else read_instant("from", query.since)
    until = None if query.until is UNSET else read_instant("to", query.until)
    return json_reply(200, await call.engine.history.read(since, until, step, query.queue, query.type))


OPERATIONS = (read_history,)
