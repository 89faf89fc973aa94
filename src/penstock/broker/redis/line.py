"""A connection to the server, and one that many callers share."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import urlsplit

from redis.asyncio import Connection, ConnectionPool
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError

from penstock.model.errors import InvalidSetting

Word = str | int | bytes


class RedisAddress:
    """Where the server is. Shown without user and password."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self._shown = f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
            # Protocol 2: pushed messages would otherwise be mixed with answers. Deadlines are the callers'.
            self._pool = ConnectionPool.from_url(
                _spelled(url), protocol=2, socket_timeout=None, driver_info=None, health_check_interval=0
            )
        except (ValueError, RedisError):
            # What the parser complains about may be a piece of the password.
            raise InvalidSetting(
                "the broker's URL cannot be read: expected redis://, rediss:// or valkey://[user:password@]host:port/0,"
                " or unix:///path; escape special characters of the password"
            ) from None

    def __str__(self) -> str:
        return self._shown

    async def connect(self) -> Connection:
        """A new connection, ready for commands."""
        connection: Connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection


class Pipeline:
    """One connection for many callers: requests go out as they come, answers come back in the same order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._unanswered: deque[asyncio.Future[Any]] = deque()
        self._sending = asyncio.Lock()
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, address: RedisAddress) -> Self:
        return cls(await address.connect())

    @property
    def is_open(self) -> bool:
        return not self._reading.done() and bool(self._connection.is_connected)

    async def ask(self, words: Sequence[Word]) -> Any:
        """The server's answer; raises what redis-py raises. A caller that is cancelled loses only its own answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with self._sending:
            if not self.is_open:
                raise Disconnected("the connection was lost")
            self._unanswered.append(answer)
            await self._connection.send_packed_command(self._connection.pack_command(*words), check_health=False)
        return await answer

    async def close(self) -> None:
        """Whoever still waits for an answer is told that the connection is lost."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        await self._connection.disconnect(nowait=True)

    async def _read(self) -> None:
        trouble: BaseException = Disconnected("the connection was closed")
        try:
            while True:
                self._answer(await self._next())
        except (RedisError, OSError) as lost:
            trouble = lost
        finally:
            await self._connection.disconnect(nowait=True)
            for answer in self._unanswered:
                if not answer.done():
                    answer.set_exception(trouble)

    async def _next(self) -> Any:
        try:
            return await self._connection.read_response(timeout=math.inf, disconnect_on_error=False)
        except ResponseError as error:
            return error

    def _answer(self, reply: Any) -> None:
        answer = self._unanswered.popleft()
        if answer.done():
            return
        if isinstance(reply, ResponseError):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)


def _spelled(url: str) -> str:
    """Valkey's own scheme as redis-py knows it."""
    scheme, separator, rest = url.partition("://")
    return {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme) + separator + rest
