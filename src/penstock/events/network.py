"""Connections of webhooks: a host is resolved once, all its addresses are judged, and one of those is connected to.

A host name may have another address each time it is looked up. So the address that was judged is the one used, on every
connect; the name remains for TLS and for the Host header.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Any, Final, Protocol

import httpcore2

from penstock.events.addresses import AddressRules, IpAddress, check_addresses, literal
from penstock.model.errors import UnresolvedHost

RESOLVE_DEADLINE: Final = timedelta(seconds=3)
MOST_LOOKUPS: Final = 16
MOST_ADDRESSES: Final = 4
"""How many addresses of a host are tried."""

Lookup = Callable[[str], Sequence[IpAddress]]


class Resolver(Protocol):
    """Finds the addresses of host names."""

    async def resolve(self, host: str) -> Sequence[IpAddress]:
        """All addresses of a name, in the order to try them. UnresolvedHost if there is none."""
        ...


def look_up(host: str) -> list[IpAddress]:
    """Ask the system's resolver; blocks for as long as it takes. OSError if there is no such name."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(address[0]) for *_, address in found))


class SystemResolver:
    """The system's resolver, asked in threads of its own, a bounded number at a time.

    A name server that does not answer keeps a thread for many seconds: it must hold up neither other threads of the
    process nor its exit.
    """

    def __init__(self, lookup: Lookup = look_up, most: int = MOST_LOOKUPS) -> None:
        self._lookup = lookup
        self._free = asyncio.Semaphore(most)
        self._running: dict[str, asyncio.Future[Sequence[IpAddress]]] = {}

    async def resolve(self, host: str) -> Sequence[IpAddress]:
        """Callers that ask for the same name meanwhile share one lookup, so that a slow name keeps one thread only."""
        if host not in self._running:
            await self._free.acquire()
            self._start(host)
        try:
            return await asyncio.shield(self._running[host])
        except (OSError, UnicodeError) as error:
            raise UnresolvedHost(f"url: {host} has no address: {error}") from None

    def _start(self, host: str) -> None:
        """Start a lookup with the permit just acquired; give that back if another caller was faster."""
        if host in self._running:
            self._free.release()
            return
        loop = asyncio.get_running_loop()
        running: asyncio.Future[Sequence[IpAddress]] = loop.create_future()
        self._running[host] = running
        running.add_done_callback(lambda _: self._finish(host, running))
        threading.Thread(target=self._run, args=(host, loop, running), name="webhook-dns", daemon=True).start()

    def _run(self, host: str, loop: asyncio.AbstractEventLoop, running: "asyncio.Future[Any]") -> None:
        try:
            settle, value = running.set_result, self._lookup(host)
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            settle, value = running.set_exception, error  # type: ignore[assignment]
        try:
            loop.call_soon_threadsafe(settle, value)
        except RuntimeError:
            # The loop was closed meanwhile: the process is stopping.
            return

    def _finish(self, host: str, running: "asyncio.Future[Any]") -> None:
        del self._running[host]
        self._free.release()
        if not running.cancelled():
            # Read here too: all callers may have given up.
            running.exception()


class PinnedBackend(httpcore2.AsyncNetworkBackend):
    """The network of a pool of connections that leads to judged addresses only. Knows no proxies.

    `secure`: whether what is sent over it is encrypted.
    """

    def __init__(
        self,
        rules: AddressRules,
        resolver: Resolver,
        *,
        secure: bool,
        network: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self._rules = rules
        self._resolver = resolver
        self._secure = secure
        self._network = network or httpcore2.AnyIOBackend()

    async def find_addresses(self, host: str, deadline: timedelta = RESOLVE_DEADLINE) -> Sequence[IpAddress]:
        """All addresses of a host, every one of them allowed; RefusedAddress or UnresolvedHost otherwise."""
        written = literal(host)
        addresses = [written] if written is not None else await self._resolve(host, deadline)
        check_addresses(host, addresses, self._rules, secure=self._secure)
        return addresses

    async def _resolve(self, host: str, deadline: timedelta) -> Sequence[IpAddress]:
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                addresses = await self._resolver.resolve(host)
        except TimeoutError:
            told = f"no answer within {deadline.total_seconds():g} s"
            raise UnresolvedHost(f"url: the addresses of {host} could not be found: {told}") from None
        if not addresses:
            raise UnresolvedHost(f"url: {host} has no address")
        return addresses

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first judged address that answers; all of it within `timeout`."""
        span = RESOLVE_DEADLINE.total_seconds() if timeout is None else timeout
        try:
            async with asyncio.timeout(span):
                addresses = await self.find_addresses(host, timedelta(seconds=span))
                return await self._connect_first(addresses[:MOST_ADDRESSES], port, span, socket_options)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"no connection to {host} within {span:g} s") from None

    async def _connect_first(
        self, addresses: Sequence[IpAddress], port: int, span: float, options: Iterable[Any] | None
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = addresses
        for address in others:
            try:
                share = span / len(addresses)
                return await self._network.connect_tcp(str(address), port, timeout=share, socket_options=options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._network.connect_tcp(str(last), port, timeout=span, socket_options=options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("webhooks are not sent to sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)
