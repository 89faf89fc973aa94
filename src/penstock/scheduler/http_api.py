"""The engine over HTTP, as a scheduler reaches it that holds only a server's address."""

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
        """The body of a good answer; any other one, or none in time, is raised as the error it stands for."""
        ...

    async def close(self) -> None: ...


class HttpSchedulerApi:
    """Keeps Timekeeper over one server's `/v1/schedulers`. No answer in time, or none at all, is ServerUnavailable."""

    def __init__(self, line: SchedulerConnection, scheduler: str) -> None:
        self._line = line
        self._path = f"/v1/schedulers/{scheduler}"
        self._encoder = msgspec.json.Encoder()

    async def due(self, slot: timedelta, limit: int, wait: timedelta = ZERO, seen: str | None = None) -> Agenda:
        request = DueRequest(slot.total_seconds(), limit, wait.total_seconds(), seen)
        return await self._post("due", request, Agenda, wait.total_seconds() + ANSWER_SECONDS)

    async def apply(self, decisions: Sequence[Decision]) -> list[bool]:
        answer = await self._post("tick", TickRequest(tuple(decisions)), TickResponse, ANSWER_SECONDS)
        return list(answer.applied)

    async def close(self) -> None:
        await self._line.close()

    async def _post(self, move: str, request: msgspec.Struct, answer: type[T], seconds: float) -> T:
        raw = await self._line.post(f"{self._path}/{move}", self._encoder.encode(request), seconds)
        try:
            return msgspec.json.decode(raw, type=answer)
        except msgspec.MsgspecError as error:
            raise ServerUnavailable(f"the server gave an answer that cannot be read: {error}") from None
