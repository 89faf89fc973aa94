"""Webhooks: the notifier that posts events to HTTP endpoints, signed, to judged addresses only."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpcore2
from msgspec import Struct

from penstock import __version__
from penstock.events.addresses import AddressRules, WebhookUrl, check_url
from penstock.events.cloudevents import OutgoingEvent, batch_id, encode_batch, encode_event
from penstock.events.network import PinnedBackend, Resolver, SystemResolver
from penstock.events.notifier import Delivered, Delivery, Gone, Rejected, Unreachable
from penstock.events.retries import LONGEST_WISH
from penstock.model.clock import Clock, seconds
from penstock.model.errors import Invalid
from penstock.model.signatures import sign
from penstock.model.subscriptions import Subscription, SubscriptionSink
from penstock.model.text import readable
from penstock.model.wire.cloudevents import BATCH_CONTENT_TYPE, CONTENT_TYPE

USER_AGENT: Final = f"Penstock/{__version__} (webhooks)"
MOST_READ: Final = 64 * 1024
MOST_KEPT: Final = 1024
MOST_IDLE: Final = 100
IDLE_SECONDS: Final = 30.0
GONE: Final = 410
_MOST_DIGITS = 9

_NO_ANSWER = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.ConnectionNotAvailable,
    OSError,
)
_HUNG_UP = (httpcore2.RemoteProtocolError, httpcore2.ReadError, httpcore2.WriteError)


class DeliveryDeadlines(Struct, frozen=True):
    """How long a sink may take to be connected to, and for its whole answer."""

    connect: timedelta = timedelta(seconds=3)
    answer: timedelta = timedelta(seconds=15)


class WebhookAnswer(Struct, frozen=True):
    """What an endpoint answered: of the body only its beginning, as it came."""

    status: int
    headers: Mapping[str, str]
    beginning: bytes

    @property
    def detail(self) -> str:
        """For people: where a redirect leads, else the beginning of the body."""
        if 300 <= self.status < 400:
            return f"redirects are not followed; it leads to {self.headers.get('location', 'nowhere')[:200]}"
        return readable(self.beginning.decode(errors="replace")).strip()


class WebhookNotifier:
    """Keeps the Notifier protocol over HTTP/1.1. 2xx alone is success; redirects are failures and never followed."""

    def __init__(
        self,
        rules: AddressRules,
        source: str,
        clock: Clock,
        *,
        resolver: Resolver | None = None,
        deadlines: DeliveryDeadlines | None = None,
        network: httpcore2.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`source` names this Penstock system in every event; `network` and `tls` are the machine's own by default.

        Reads the machine's certificates, which takes tens of milliseconds.
        """
        resolver = resolver or SystemResolver()
        self._rules = rules
        self._source = source
        self._clock = clock
        self._deadlines = deadlines or DeliveryDeadlines()
        self._backends = {
            secure: PinnedBackend(rules, resolver, secure=secure, network=network) for secure in (True, False)
        }
        tls = tls or httpcore2.default_ssl_context()
        self._pools = {secure: _pool(backend, tls) for secure, backend in self._backends.items()}

    async def check(self, sink: SubscriptionSink) -> None:
        url = check_url(sink.address, self._rules)
        await self._backends[url.secure].find_addresses(url.host)

    async def deliver(self, subscription: Subscription, events: Sequence[OutgoingEvent]) -> Delivery:
        started = self._clock.monotonic()
        body, headers = self._message(subscription, events)
        answer = await self._try_post(subscription.sink.address, headers, body)
        took = seconds(self._clock.monotonic() - started)
        if isinstance(answer, str):
            return Unreachable(answer, took)
        return outcome_of(answer, took, self._clock.now())

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def _message(self, subscription: Subscription, events: Sequence[OutgoingEvent]) -> tuple[bytes, dict[str, str]]:
        """The body and its headers, signed over exactly these bytes."""
        if subscription.batch > 1:
            body, id = encode_batch(events, self._source), batch_id([one.event.id for one in events])
            content_type = BATCH_CONTENT_TYPE
        else:
            (single,) = events
            body, id, content_type = encode_event(single, self._source), single.event.id, CONTENT_TYPE
        now = self._clock.now()
        return body, {"content-type": content_type, **sign(subscription.signing_secrets(now), id, now, body)}

    async def _try_post(self, text: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer | str:
        """The answer, or why there is none."""
        deadline = self._deadlines.answer.total_seconds()
        try:
            url = check_url(text, self._rules)
            async with asyncio.timeout(deadline):
                return await self._post(url, headers, body)
        except TimeoutError:
            return f"no whole answer within {deadline:g} s"
        except Invalid as error:
            return error.message
        except _NO_ANSWER as error:
            return readable(error) or type(error).__name__

    async def _post(self, url: WebhookUrl, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Send it; once more if a connection that was kept turns out to be closed by the other side."""
        trace = ConnectTrace()
        try:
            return await self._send(url, headers, body, trace)
        except _HUNG_UP:
            if trace.fresh:
                raise
            return await self._send(url, headers, body, trace)

    async def _send(
        self, url: WebhookUrl, headers: Mapping[str, str], body: bytes, trace: "ConnectTrace"
    ) -> WebhookAnswer:
        target = httpcore2.URL(
            scheme="https" if url.secure else "http", host=url.host, port=url.port, target=url.target
        )
        named = {"host": url.authority, "user-agent": USER_AGENT, "accept-encoding": "identity", **headers}
        named["content-length"] = str(len(body))
        timeouts = {"connect": self._deadlines.connect.total_seconds()}
        extensions = {"timeout": timeouts, "trace": trace.note}
        async with self._pools[url.secure].stream(
            "POST", target, headers=list(named.items()), content=body, extensions=extensions
        ) as response:
            beginning = await _read_beginning(response)
            return WebhookAnswer(response.status, _text_headers(response), beginning)


class ConnectTrace:
    """Whether a request opened a connection of its own, rather than being given a kept one."""

    def __init__(self) -> None:
        self.fresh = False

    async def note(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.started":
            self.fresh = True


def outcome_of(answer: WebhookAnswer, took: timedelta, now: datetime) -> Delivery:
    """What an answer means for the events."""
    if 200 <= answer.status < 300:
        return Delivered(answer.status, took)
    if answer.status == GONE:
        return Gone(answer.detail, took)
    return Rejected(answer.status, answer.detail, took, retry_after(answer.headers.get("retry-after", ""), now))


def retry_after(text: str, now: datetime) -> timedelta | None:
    """The pause that a Retry-After header asks for, in seconds or until a date; a day at most, None if unreadable."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return min(seconds(int(text[:_MOST_DIGITS])), LONGEST_WISH)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    # Dates of HTTP are in GMT, also where the zone is written as -0000.
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max(at - now, timedelta(0)), LONGEST_WISH)


def _pool(backend: PinnedBackend, tls: ssl.SSLContext) -> httpcore2.AsyncConnectionPool:
    return httpcore2.AsyncConnectionPool(
        ssl_context=tls,
        # How many are open at a time is limited per subscription: here one slow sink must not hold up the others.
        max_connections=None,
        max_keepalive_connections=MOST_IDLE,
        keepalive_expiry=IDLE_SECONDS,
        retries=0,
        network_backend=backend,
    )


async def _read_beginning(response: httpcore2.Response) -> bytes:
    """Read up to the limit, and keep the beginning. What is longer is not read: its connection is closed."""
    kept, read = b"", 0
    async for chunk in response.aiter_stream():
        kept += chunk[: MOST_KEPT - len(kept)]
        read += len(chunk)
        if read >= MOST_READ:
            break
    return kept


def _text_headers(response: httpcore2.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
