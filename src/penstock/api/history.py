"""History: what happened in each step of a span of time, and how many jobs there were."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

from penstock.api.operation import Answer, operation
from penstock.api.request import ApiReply, ApiRequest, json_reply
from penstock.model.clock import Instant, seconds, utc
from penstock.model.names import Name
from penstock.model.wire.history import HistoryReport


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """From and to when (an hour up to now), in steps of how many seconds, and of which jobs."""

    since: Annotated[Instant, Meta(description="The first instant; an hour before `to` unless told.")] | None = field(
        name="from", default=None
    )
    until: Annotated[Instant, Meta(description="The last instant; now unless told.")] | None = field(
        name="to", default=None
    )
    step: Annotated[float, Meta(ge=10, le=604_800, description="Seconds; a multiple of 10.")] | None = None
    queue: Name | None = None
    type: Name | None = None


@operation("GET /v1/history", {200: Answer("Steps, oldest first.", HistoryReport)}, query=HistoryQuery, refusals=(409,))
async def read_history(call: ApiRequest) -> ApiReply:
    """Read what happened and how many jobs there were, in at most 400 steps."""
    query = call.query(HistoryQuery)
    step = None if query.step is None else seconds(query.step)
    since, until = _checked("from", query.since), _checked("to", query.until)
    return json_reply(200, await call.engine.history.read(since, until, step, query.queue, query.type))


def _checked(name: str, at: datetime | None) -> datetime | None:
    return None if at is None else utc(name, at)


OPERATIONS = (read_history,)
