"""The scheduler's calls over HTTP, for a scheduler that knows only a server's address."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

import msgspec

from penstock.model.errors import ServerUnavailable
from penstock.model.schedule import Decision
from penstock.model.wire.schedules import Agenda, DueRequest, TickRequest, TickResponse

ANSWER_SECONDS = 10.0
ZERO = timedelta(0)

T = TypeVar("T")


class SchedulerConnection(Protocol):
    """A connection to one server."""

    async def post(self, path: str, body: bytes, seconds: float) -> bytes:
        """The body of a successful response; any other response, or none in time, raises the error it means."""
        ...

    async def close(self) -> None: ...


class HttpSchedulerApi:
    """Implements SchedulerApi over one server's `/v1/schedulers`. No answer in time raises ServerUnavailable."""

    def __init__(self, connection: SchedulerConnection, scheduler: str) -> None:
        self._connection = connection
        self._path = f"/v1/schedulers/{scheduler}"
        self._encoder = msgspec.json.Encoder()

    async def due(self, slot: timedelta, limit: int, wait: timedelta = ZERO, seen: str | None = None) -> Agenda:
        request = DueRequest(slot.total_seconds(), limit, wait.total_seconds(), seen)
        return await self._post("due", request, Agenda, wait.total_seconds() + ANSWER_SECONDS)

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        answer = await self._post("tick", TickRequest(tuple(decisions)), TickResponse, ANSWER_SECONDS)
        return list(answer.applied)

    async def close(self) -> None:
        await self._connection.close()

    async def _post(self, move: str, request: msgspec.Struct, answer: type[T], seconds: float) -> T:
        raw = await self._connection.post(f"{self._path}/{move}", self._encoder.encode(request), seconds)
        try:
            return msgspec.json.decode(raw, type=answer)
        except msgspec.MsgspecError as error:
            raise ServerUnavailable(f"the server gave an answer that cannot be read: {error}") from None
