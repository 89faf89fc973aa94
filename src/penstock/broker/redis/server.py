"""The server as the broker calls it: each call has a deadline, reconnects by itself and fails at once in an outage."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from penstock.broker.redis.breaker import RedisBreaker
from penstock.broker.redis.line import Pipeline, RedisAddress, Word
from penstock.broker.redis.scripts import Script
from penstock.model.errors import BrokerUnavailable
from penstock.model.timing import Clock


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
