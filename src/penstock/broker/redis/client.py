"""The server as the broker calls it: each call has a deadline, reconnects by itself and fails at once in an outage."""

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
    """Counts failures in a row. The rest between trials is jittered, so that processes do not come back together."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._failures = 0
        self._shut_until = 0.0

    def admits(self) -> bool:
        """May this call go ahead? While broken, one call in each rest may."""
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


class RedisRefused(BrokerUnavailable):
    """The server answered, with an error of its own."""


class RedisClient:
    """Commands and scripts over one line, which is found again when it was lost."""

    def __init__(self, address: RedisAddress, deadline: timedelta, clock: Clock, rng: random.Random) -> None:
        self.address = address
        self.deadline = deadline
        self._breaker = RedisBreaker(clock, rng)
        self._line: Pipeline | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def run(self, script: Script, base: str, *words: Word) -> Any:
        """Run a script; one the server has not seen since it started is sent whole."""
        try:
            return await self.ask("EVALSHA", script.sha, 1, base, *words)
        except NoScriptError:
            return await self.ask("EVAL", script.text, 1, base, *words)

    async def ask(self, *words: Word) -> Any:
        """The answer to one command; BrokerUnavailable without one in time, ServerRefused when it is an error."""
        if self._closed:
            raise self._unavailable("it was closed")
        if not self._breaker.admits():
            raise self._unavailable("it did not answer several times and rests for a moment")
        line: Pipeline | None = None
        try:
            async with asyncio.timeout(self.deadline.total_seconds()):
                line = await self._reach()
                answer = await self._ask_twice(line, words)
        except ResponseError as error:
            self._breaker.worked()
            raise (await self._explain_refusal(line, error)) from None
        except (RedisError, OSError) as error:
            self._breaker.failed()
            await self._give_up(line)
            raise self._unavailable(str(error) or "no answer in time") from error
        self._breaker.worked()
        return answer

    async def close(self) -> None:
        """Further calls raise BrokerUnavailable. May be repeated."""
        self._closed = True
        async with self._connecting:
            await self._give_up(self._line)

    async def _ask_twice(self, line: Pipeline, words: Sequence[Word]) -> Any:
        """An idle line may have been cut unnoticed. Run twice, a script doubles or loses tickets, which may happen."""
        try:
            return await line.ask(words)
        except Disconnected:
            return await (await self._reach()).ask(words)

    async def _reach(self) -> Pipeline:
        async with self._connecting:
            if self._line is None or not self._line.is_open:
                await self._give_up(self._line)
                self._line = await Pipeline.open(self.address)
            return self._line

    async def _give_up(self, line: Pipeline | None) -> None:
        """Leave a line: answers that are late would be in the way of the next ones."""
        if line is not None:
            if line is self._line:
                self._line = None
            await line.close()

    async def _explain_refusal(self, line: Pipeline | None, refusal: ResponseError) -> Exception:
        if isinstance(refusal, NoScriptError):
            return refusal
        if isinstance(refusal, ReadOnlyError):
            # It has become a replica; the same address may lead to the new primary.
            await self._give_up(line)
        return RedisRefused(f"the broker at {self.address} refused: {refusal}")

    def _unavailable(self, why: str) -> BrokerUnavailable:
        return BrokerUnavailable(f"the broker at {self.address} cannot be reached ({why}); jobs wait in the store")
