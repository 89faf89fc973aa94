"""Receive Penstock's webhooks in a web app of your own: verify their signature, read their events.

    receiver = Receiver(os.environ["WEBHOOK_SECRET"])
    for received in receiver.read(request.headers, body): ...

Answer with 2xx once the events are kept, and with 400 for WebhookRefused. Every event comes at least once: `event.id`
tells those that came before. Those of one job come in the order of `event.version`.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct

from penstock.model.clock import EPOCH, Clock, SystemClock, seconds
from penstock.model.errors import BadSignature, Invalid, StaleWebhook, UnreadableWebhook, WebhookRefused
from penstock.model.events import JobEvent
from penstock.model.signatures import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, is_signed, sign, signing_key
from penstock.model.wire.cloudevents import TYPE_PREFIX, CloudEventData
from penstock.model.wire.jobs import JobItem

__all__ = [
    "BadSignature",
    "ReceivedEvent",
    "Receiver",
    "StaleWebhook",
    "UnreadableWebhook",
    "WebhookRefused",
    "read_events",
    "sign",
]

TOLERANCE: Final = timedelta(minutes=5)
_MOST_DIGITS = 12


class WebhookHeaders(Protocol):
    """The headers of a request, as any framework gives them: names in any case, and their values."""

    def items(self) -> Iterable[tuple[str, str]]: ...


class ReceivedEvent(Struct, frozen=True):
    """An event and its job, as it was when the event was sent; None where the subscription includes facts only."""

    event: JobEvent
    job: JobItem | None


class Receiver:
    """Reads the webhooks that are signed with one of its secrets. Give the old and the new one during a rotation."""

    def __init__(self, *secrets: str, tolerance: timedelta = TOLERANCE, clock: Clock | None = None) -> None:
        if not secrets:
            raise Invalid("secret: a receiver needs at least one, as `penstock subscriptions create` printed it")
        self._keys = [signing_key(secret) for secret in secrets]
        self._tolerance = tolerance
        self._clock = clock or SystemClock()

    def read(self, headers: WebhookHeaders, body: bytes) -> list[ReceivedEvent]:
        """The events of a request, one or a batch of them, in order. `body` must be the bytes as they came.

        Raises BadSignature, StaleWebhook or UnreadableWebhook. A message that is about no job has no events.
        """
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"the signature is over the bytes of the body as they came, not over a {type(body).__name__}"
            )
        body = bytes(body)
        self._verify({name.lower(): value for name, value in headers.items()}, body)
        return read_events(body)

    def _verify(self, headers: dict[str, str], body: bytes) -> None:
        missing = [name for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER) if not headers.get(name)]
        if missing:
            raise BadSignature(f"the webhook has no {' and no '.join(missing)}: it does not come from Penstock")
        timestamp = headers[TIMESTAMP_HEADER]
        if not is_signed(self._keys, headers[ID_HEADER], timestamp, headers[SIGNATURE_HEADER], body):
            wrong = f"webhook {headers[ID_HEADER][:80]!r} is not signed with a known secret"
            raise BadSignature(f"{wrong}; check the secret, and that the body is given exactly as it came")
        self._check_age(timestamp)

    def _check_age(self, timestamp: str) -> None:
        if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > _MOST_DIGITS:
            raise StaleWebhook(f"{TIMESTAMP_HEADER}: {timestamp[:80]!r} is not a time in seconds")
        age = self._clock.now() - EPOCH - seconds(int(timestamp))
        if abs(age) > self._tolerance:
            apart = f"{abs(age.total_seconds()):.0f} s {'ago' if age > timedelta() else 'in the future'}"
            allowed = f"{self._tolerance.total_seconds():.0f} s are allowed"
            raise StaleWebhook(f"the webhook was signed {apart}, {allowed}; check this machine's clock")


def read_events(body: bytes | str) -> list[ReceivedEvent]:
    """The events of a message that needs no signature: of SNS, as a queue or a function that subscribes gets it.

    Raises UnreadableWebhook. A message that is about no job has no events.
    """
    return [_received(one) for one in _envelopes(body) if one.type.startswith(TYPE_PREFIX)]


class _EnvelopeHead(Struct, frozen=True):
    """What every CloudEvent has; the rest is read only of those about jobs."""

    type: str
    data: Raw = Raw(b"null")


def _envelopes(body: bytes | str) -> list[_EnvelopeHead]:
    try:
        read = msgspec.json.decode(body, type=_EnvelopeHead | list[_EnvelopeHead])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableWebhook(f"the webhook's body is no CloudEvent and no batch of them: {error}") from None
    return read if isinstance(read, list) else [read]


def _received(envelope: _EnvelopeHead) -> ReceivedEvent:
    try:
        data = msgspec.json.decode(envelope.data, type=CloudEventData[JobItem])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableWebhook(f"an event of type {envelope.type[:80]} cannot be read: {error}") from None
    return ReceivedEvent(data.event, data.job)
