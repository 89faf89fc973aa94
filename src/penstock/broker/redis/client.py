"""The client of the Redis server: each call has a deadline, reconnects, and fails at once while the server is down."""

import asyncio
import math
import random
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self
from urllib.parse import urlsplit

from redis.asyncio import Connection, ConnectionPool
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from penstock.broker.redis.scripts import Script
from penstock.model.clock import Clock
from penstock.model.errors import BrokerUnavailable, InvalidSetting

FAILURES = 3
REST = timedelta(milliseconds=500)


class RedisBreaker:
    """A circuit breaker: opens after FAILURES in a row. The pause between trials is jittered for each process."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._shut_until = 0.0

    def admits(self) -> bool:
        """Whether this call may go ahead. While the breaker is open, one call per pause may."""
        if self._failures < FAILURES:
            return True
        if self._clock.monotonic() < self._shut_until:
            return False
        self._shut()
        return True

    def failed(self) -> None:
        self._failures += 1
        self._shut()

    def worked(self) -> None:
        self._failures = 0

    def _shut(self) -> None:
        self._shut_until = self._clock.monotonic() + REST.total_seconds() * self._rng.uniform(0.5, 1.5)


Word = str | int | bytes

WRITTEN_TOO_LATE = "the connection was lost"
"""uvloop raises RuntimeError for a write to a connection whose loss its reader has not been told yet."""


class RedisAddress:
    """The address of the server. Shown without user and password."""

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
        except RuntimeError as error:
            await connection.disconnect(nowait=True)
            raise Disconnected(WRITTEN_TOO_LATE) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection


class Pipeline:
    """One connection for many callers: requests are sent as they come, replies arrive in the same order."""

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
        """The server's reply; raises what redis-py raises. A cancelled caller loses only its own reply."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with self._sending:
            if not self.is_open:
                raise Disconnected(WRITTEN_TOO_LATE)
            self._unanswered.append(answer)
            try:
                await self._connection.send_packed_command(self._connection.pack_command(*words), check_health=False)
            except BaseException as error:
                # The connection is closed by now, so that no reply comes for it.
                answer.cancel()
                if isinstance(error, RuntimeError):
                    raise Disconnected(WRITTEN_TOO_LATE) from error
                raise
        return await answer

    async def close(self) -> None:
        """Fail the calls that still wait for a reply."""
        self._reading.cancel()
        await asyncio.wait({self._reading})
        await self._connection.disconnect(nowait=True)

    async def _read(self) -> None:
        error: BaseException = Disconnected("the connection was closed")
        try:
            while True:
                self._answer(await self._next())
        except (RedisError, OSError) as lost:
            error = lost
        finally:
            await self._connection.disconnect(nowait=True)
            for answer in self._unanswered:
                if not answer.done():
                    answer.set_exception(error)

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


class RedisRefused(BrokerUnavailable):
    """The server answered, with an error of its own."""


class RedisClient:
    """Commands and scripts over one connection, which is opened again after it was lost."""

    def __init__(self, address: RedisAddress, deadline: timedelta, clock: Clock, rng: random.Random) -> None:
        self.address = address
        self.deadline = deadline
        self._breaker = RedisBreaker(clock, rng)
        self._pipeline: Pipeline | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def run(self, script: Script, base: str, *words: Word) -> Any:
        """Run a script by its digest; send its text if the server does not know it yet."""
        try:
            return await self.ask("EVALSHA", script.sha, 1, base, *words)
        except NoScriptError:
            return await self.ask("EVAL", script.text, 1, base, *words)

    async def ask(self, *words: Word) -> Any:
        """The reply to one command; BrokerUnavailable without one in time, RedisRefused if it is an error."""
        if self._closed:
            raise self._unavailable("it was closed")
        if not self._breaker.admits():
            raise self._unavailable("it did not answer several times and rests for a moment")
        pipeline: Pipeline | None = None
        try:
            async with asyncio.timeout(self.deadline.total_seconds()):
                pipeline = await self._connect()
                answer = await self._ask_twice(pipeline, words)
        except ResponseError as error:
            self._breaker.worked()
            raise (await self._explain_refusal(pipeline, error)) from None
        except (RedisError, OSError) as error:
            self._breaker.failed()
            await self._drop(pipeline)
            raise self._unavailable(str(error) or "no answer in time") from error
        self._breaker.worked()
        return answer

    async def close(self) -> None:
        """Further calls raise BrokerUnavailable. May be repeated."""
        self._closed = True
        async with self._connecting:
            await self._drop(self._pipeline)

    async def _ask_twice(self, pipeline: Pipeline, words: Sequence[Word]) -> Any:
        """Retry over a new connection if the old one was cut. A script that ran twice doubles or loses tickets."""
        try:
            return await pipeline.ask(words)
        except Disconnected:
            return await (await self._connect()).ask(words)

    async def _connect(self) -> Pipeline:
        async with self._connecting:
            if self._pipeline is None or not self._pipeline.is_open:
                await self._drop(self._pipeline)
                self._pipeline = await Pipeline.open(self.address)
            return self._pipeline

    async def _drop(self, pipeline: Pipeline | None) -> None:
        """Close a connection: its late replies would be taken for those of the next commands."""
        if pipeline is not None:
            if pipeline is self._pipeline:
                self._pipeline = None
            await pipeline.close()

    async def _explain_refusal(self, pipeline: Pipeline | None, error: ResponseError) -> Exception:
        if isinstance(error, NoScriptError):
            return error
        if isinstance(error, ReadOnlyError):
            # The server has become a replica; a new connection to the address may reach the new primary.
            await self._drop(pipeline)
        return RedisRefused(f"the broker at {self.address} refused: {error}")

    def _unavailable(self, why: str) -> BrokerUnavailable:
        return BrokerUnavailable(f"the broker at {self.address} cannot be reached ({why}); jobs wait in the store")
