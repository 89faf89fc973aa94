"""The subscriber: a connection that only receives published messages, and reconnects after it was lost."""

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
"""After this long without a message the server gets a PING; after as long again it counts as lost."""

FIRST_REST_SECONDS = 0.05
LONGEST_REST_SECONDS = 1.0

OnMessage = Callable[[str, bytes | None], None]


class Subscriber:
    """Subscribed channels. `on_message` gets each message, and None when a subscription has (again) begun.

    It connects when it is first needed. `on_lost` is called when messages may be missed from then on.
    """

    def __init__(
        self,
        address: RedisAddress,
        deadline: timedelta,
        clock: Clock,
        rng: random.Random,
        channels: Iterable[str],
        on_message: OnMessage,
        on_lost: Callable[[], None],
    ) -> None:
        self._address = address
        self._deadline = deadline
        self._clock = clock
        self._rng = rng
        self._needed = frozenset(channels)
        self._channels = set(self._needed)
        self._on_message = on_message
        self._on_lost = on_lost
        self._subscribed: set[str] = set()
        self._ready = asyncio.Event()
        self._connection: Connection | None = None
        self._silent = False
        self._failures = 0
        self._receiving: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

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
                self._send_soon(self._connection, "SUBSCRIBE", channel)
        return channel in self._subscribed

    async def close(self) -> None:
        """May be repeated."""
        tasks = {*self._sending, *([self._receiving] if self._receiving else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self) -> None:
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(self._receive())

    async def _receive(self) -> None:
        while True:
            try:
                await self._receive_until_lost()
            except Exception as error:  # noqa: BLE001 - without a subscriber, callers would wait while there are tickets
                self._log_loss(error)
            await self._clock.sleep(self._back_off())

    async def _receive_until_lost(self) -> None:
        async with asyncio.timeout(self._deadline.total_seconds()):
            connection = await self._address.connect()
        try:
            self._silent = False
            self._connection = connection
            self._send_soon(connection, "SUBSCRIBE", *self._channels)
            while True:
                self._dispatch(connection, await connection.read_response(timeout=SILENCE_SECONDS))
        finally:
            self._connection = None
            self._subscribed.clear()
            self._ready.clear()
            await connection.disconnect(nowait=True)
            self._on_lost()

    def _dispatch(self, connection: Connection, reply: Any) -> None:
        if reply is None:
            self._check_silence(connection)
            return
        self._silent = False
        match reply:
            case [b"subscribe", bytes() as channel, _]:
                self._mark_subscribed(channel.decode())
            case [b"message", bytes() as channel, bytes() as message]:
                self._on_message(channel.decode(), message)

    def _check_silence(self, connection: Connection) -> None:
        if self._silent:
            raise TimeoutError("it fell silent")
        self._silent = True
        self._send_soon(connection, "PING")

    def _mark_subscribed(self, channel: str) -> None:
        self._subscribed.add(channel)
        if not self._ready.is_set() and self._needed <= self._subscribed:
            self._ready.set()
            self._log_recovery()
        self._on_message(channel, None)

    def _send_soon(self, connection: Connection, *words: str) -> None:
        """Send without waiting; the reply arrives as a message."""
        task = asyncio.ensure_future(_send(connection, words))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _log_loss(self, error: Exception) -> None:
        if not self._failures:
            logger.warning("cannot listen to the broker at %s (%s); trying again until it can", self._address, error)
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
    except (RedisError, OSError, RuntimeError):
        # The reading task gets the same error, and logs it. RuntimeError: see WRITTEN_TOO_LATE.
        return
