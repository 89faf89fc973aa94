"""What the server calls out to this process: a connection that only listens, and is found again when it was lost."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from redis.asyncio import Connection
from redis.exceptions import RedisError

from penstock.backoff import backoff_seconds
from penstock.broker.redis.client import RedisAddress
from penstock.model.clock import Clock, seconds
from penstock.model.errors import BrokerUnavailable

logger = logging.getLogger("penstock.broker")

SILENCE_SECONDS = 1.0
"""After this long without a word the server is asked whether it is there; after as long again it is not."""

FIRST_REST_SECONDS = 0.05
LONGEST_REST_SECONDS = 1.0

OnMessage = Callable[[str, bytes | None], None]


class Subscriber:
    """Hears channels. `heard` gets each message; None instead of a message when a channel is (again) listened to.

    It is connected when it is first needed. `lost` is called when what follows may be missed.
    """

    def __init__(
        self,
        address: RedisAddress,
        deadline: timedelta,
        clock: Clock,
        rng: random.Random,
        channels: Iterable[str],
        heard: OnMessage,
        lost: Callable[[], None],
    ) -> None:
        self._address = address
        self._deadline = deadline
        self._clock = clock
        self._rng = rng
        self._needed = frozenset(channels)
        self._channels = set(self._needed)
        self._heard = heard
        self._lost = lost
        self._attended: set[str] = set()
        self._ready = asyncio.Event()
        self._connection: Connection | None = None
        self._silent = False
        self._failures = 0
        self._hearing: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        """Return once the first channels are listened to; BrokerUnavailable if they are not in time."""
        self._start()
        if self._ready.is_set():
            return
        try:
            async with asyncio.timeout(self._deadline.total_seconds()):
                await self._ready.wait()
        except TimeoutError:
            raise BrokerUnavailable(
                f"the broker at {self._address} cannot be listened to; jobs wait in the store"
            ) from None

    def subscribe(self, channel: str) -> bool:
        """Listen to one more channel; True when it is listened to already, otherwise `heard` is told when it is."""
        self._start()
        if channel not in self._channels:
            self._channels.add(channel)
            if self._connection is not None:
                self._ask(self._connection, "SUBSCRIBE", channel)
        return channel in self._attended

    async def close(self) -> None:
        """May be repeated."""
        tasks = {*self._asking, *([self._hearing] if self._hearing else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self) -> None:
        if self._hearing is None:
            self._hearing = asyncio.ensure_future(self._receive())

    async def _receive(self) -> None:
        while True:
            try:
                await self._receive_until_lost()
            except Exception as error:  # noqa: BLE001 - deaf for good, takers would wait beside their tickets
                self._log_loss(error)
            await self._clock.sleep(self._back_off())

    async def _receive_until_lost(self) -> None:
        async with asyncio.timeout(self._deadline.total_seconds()):
            connection = await self._address.connect()
        try:
            self._silent = False
            self._connection = connection
            self._ask(connection, "SUBSCRIBE", *self._channels)
            while True:
                self._dispatch(connection, await connection.read_response(timeout=SILENCE_SECONDS))
        finally:
            self._connection = None
            self._attended.clear()
            self._ready.clear()
            await connection.disconnect(nowait=True)
            self._lost()

    def _dispatch(self, connection: Connection, reply: Any) -> None:
        if reply is None:
            self._check_silence(connection)
            return
        self._silent = False
        match reply:
            case [b"subscribe", bytes() as channel, _]:
                self._subscribe(channel.decode())
            case [b"message", bytes() as channel, bytes() as message]:
                self._heard(channel.decode(), message)

    def _check_silence(self, connection: Connection) -> None:
        if self._silent:
            raise TimeoutError("it fell silent")
        self._silent = True
        self._ask(connection, "PING")

    def _subscribe(self, channel: str) -> None:
        self._attended.add(channel)
        if not self._ready.is_set() and self._needed <= self._attended:
            self._ready.set()
            self._log_recovery()
        self._heard(channel, None)

    def _ask(self, connection: Connection, *words: str) -> None:
        """Send without waiting; whether it went out shows in the answer, which comes as a message."""
        task = asyncio.ensure_future(_send(connection, words))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _log_loss(self, trouble: Exception) -> None:
        if not self._failures:
            logger.warning("cannot listen to the broker at %s (%s); trying again until it can", self._address, trouble)
        self._failures += 1

    def _log_recovery(self) -> None:
        if self._failures:
            logger.info("listening to the broker at %s again", self._address)
        self._failures = 0

    def _back_off(self) -> timedelta:
        return seconds(backoff_seconds(self._failures, FIRST_REST_SECONDS, LONGEST_REST_SECONDS, self._rng))


async def _send(connection: Connection, words: Iterable[str]) -> None:
    try:
        if connection.is_connected:
            await connection.send_command(*words, check_health=False)
    except (RedisError, OSError):
        # The reader meets the same trouble, and tells.
        return
