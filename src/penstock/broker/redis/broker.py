"""The broker in Redis or Valkey: tickets, waiting callers and signals, shared by many processes."""

import logging
import random
import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import timedelta
from typing import Self

from redis.exceptions import AuthenticationError

from penstock.broker.redis import scripts, wire
from penstock.broker.redis.client import RedisAddress, RedisClient, RedisRefused
from penstock.broker.redis.subscriber import Subscriber
from penstock.broker.redis.waiters import Waiters
from penstock.broker.seam import BrokerCapabilities, SignalMessage
from penstock.broker.subscribers import Subscribers
from penstock.model.clock import Clock
from penstock.model.errors import BrokerUnavailable, InvalidSetting
from penstock.model.ids import JobId, to_bytes
from penstock.model.job import BacklogKey, Ticket
from penstock.model.workers import WorkRequest

logger = logging.getLogger("penstock.broker")

DEADLINE = timedelta(seconds=1)
HELD_AT_ONCE = 1000


class RedisBroker:
    """As `penstock.broker.memory`, shared by every process that opens the same URL with the same prefix.

    Each call returns within its deadline (a take: after its wait) or raises BrokerUnavailable; after several failures
    in a row it raises at once. A waiting take also raises when the connection is lost and not restored in time.
    """

    capabilities = BrokerCapabilities()

    def __init__(self, server: RedisClient, clock: Clock, prefix: str, rng: random.Random) -> None:
        process = secrets.token_hex(8)
        self._server = server
        # One hash tag: a cluster keeps all keys of a prefix together.
        self._base = f"{{{prefix}}}"
        self._given, self._again = f"{self._base}:to:{process}", f"{self._base}:again"
        self._subscribers = Subscribers()
        channels = (self._given, self._again)
        self._subscriber = Subscriber(
            server.address, server.deadline, clock, rng, channels, self._receive, self._missed
        )
        self._waiters = Waiters(server, self._base, process, self._subscriber.ready)
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        clock: Clock,
        prefix: str = "penstock",
        *,
        deadline: timedelta = DEADLINE,
        rng: random.Random | None = None,
    ) -> Self:
        """A broker at this URL, even while its server is away. InvalidSetting if the server would evict tickets."""
        rng = rng or random.Random(secrets.randbits(64))
        broker = cls(RedisClient(RedisAddress(url), deadline, clock, rng), clock, prefix, rng)
        try:
            await broker._check_memory()
        except InvalidSetting:
            await broker.close()
            raise
        return broker

    async def publish(self, tickets: Sequence[Ticket]) -> None:
        if tickets and not self._closed:
            await self._server.run(scripts.PUBLISH, self._base, secrets.token_hex(8), *wire.packed(tickets))

    async def take(self, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Ticket]:
        return [] if self._closed else await self._waiters.take(wanted, limit, wait)

    async def discard(self, tickets: Sequence[Ticket]) -> None:
        """Nothing to do: a ticket that was taken is forgotten."""

    async def depths(self, among: Collection[BacklogKey] | None = None) -> dict[BacklogKey, int]:
        words: list[bytes] = await self._server.ask("HGETALL", f"{self._base}:depths")
        return wire.depths(words)

    async def find_held(self, jobs: Sequence[JobId]) -> set[JobId]:
        found: set[JobId] = set()
        for start in range(0, len(jobs), HELD_AT_ONCE):
            part = jobs[start : start + HELD_AT_ONCE]
            known: list[int] = await self._server.ask("SMISMEMBER", f"{self._base}:held", *map(to_bytes, part))
            found.update(job for job, is_held in zip(part, known, strict=True) if is_held)
        return found

    async def epoch(self) -> str:
        epoch: bytes = await self._server.run(scripts.EPOCH, self._base, secrets.token_hex(8))
        return epoch.decode()

    async def send_signal(self, signal: str, message: bytes = b"") -> None:
        await self._server.ask("PUBLISH", self._channel(signal), message)

    def listen(self, signals: Collection[str]) -> AsyncIterator[SignalMessage]:
        """As the seam says; each signal is also given once at the start, as subscribing to its channel takes time."""
        local = self._subscribers.listen(signals)
        for signal in sorted(local.signals) if not self._closed else ():
            if self._subscriber.subscribe(self._channel(signal)):
                local.deliver(SignalMessage(signal))
        return local

    async def close(self) -> None:
        self._closed = True
        self._subscribers.close()
        await self._waiters.close()
        await self._subscriber.close()
        await self._server.close()

    def _channel(self, signal: str) -> str:
        return f"{self._base}:bell:{signal}"

    def _receive(self, channel: str, message: bytes | None) -> None:
        """A message from the server; None when the subscription to a channel has just begun."""
        if channel == self._given and message is not None:
            self._waiters.give(message)
        elif channel in (self._given, self._again):
            self._waiters.ask_again()
        else:
            self._subscribers.deliver(SignalMessage(channel.removeprefix(self._channel("")), message or b""))

    def _missed(self) -> None:
        self._waiters.ask_again()

    async def _check_memory(self) -> None:
        try:
            words: list[bytes] = await self._server.ask("CONFIG", "GET", "maxmemory*")
        except RedisRefused as error:
            logger.warning(
                "cannot ask the broker for its maxmemory-policy (%s); make sure that it is noeviction", error
            )
        except BrokerUnavailable as error:
            if isinstance(error.__cause__, AuthenticationError):
                raise InvalidSetting(
                    f"the broker at {self._server.address} refuses the user or password of its URL"
                ) from None
            logger.warning("%s; trying again until it can", error)
        else:
            _forbid_eviction(dict(zip(words[::2], words[1::2], strict=True)), self._server.address)


def _forbid_eviction(config: dict[bytes, bytes], address: RedisAddress) -> None:
    policy = config.get(b"maxmemory-policy", b"noeviction").decode()
    if int(config.get(b"maxmemory", 0)) and policy != "noeviction":
        raise InvalidSetting(
            f"the broker at {address} has maxmemory-policy {policy} and would drop tickets when its memory is full:"
            " set maxmemory-policy noeviction (CONFIG SET, valkey.conf, or the parameter group of a managed server)"
        )
