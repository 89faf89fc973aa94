"""What a job wrote: as JSON, or as plain text for reading."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.api.operation import Answer, Header, operation
from penstock.api.request import JSON, TEXT, ApiReply, ApiRequest, json_reply
from penstock.model.job import LogLine
from penstock.model.wire.jobs import LogPage


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines after a position, which an earlier page gave."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


@operation(
    "GET /v1/jobs/{job}/logs",
    {200: Answer("Log lines.", LogPage, (JSON, "text/plain"), headers=("Log-Position",))},
    query=LogQuery,
    headers=(Header("Accept", str, "`text/plain` gives one line of text per log line."),),
    refusals=(404,),
)
async def read_log(call: ApiRequest) -> ApiReply:
    """Read a job's log. `Log-Position` repeats the position to go on after."""
    query = call.query(LogQuery)
    page = await call.engine.jobs.log(call.job(), query.after, query.limit)
    position = ((b"log-position", b"%d" % page.position),)
    if _wants_text(call.header(b"accept") or ""):
        return ApiReply(200, "".join(map(_as_text, page.lines)).encode(), TEXT, position)
    return json_reply(200, page, position)


def _wants_text(accept: str) -> bool:
    return "text/plain" in accept and JSON not in accept


def _as_text(line: LogLine) -> str:
    return f"{line.at.isoformat(timespec='milliseconds')} {line.stream:<6} {line.text}\n"


OPERATIONS = (read_log,)
