"""What the clients ask of a server about subscriptions: one function per endpoint, each giving a `Call`."""

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from penstock.client.calls import Call, path_of, query_of
from penstock.model.errors import Invalid
from penstock.model.subscriptions import EventContent, sink_of
from penstock.model.text import check_options
from penstock.model.wire.subscriptions import (
    DeliveryPage,
    MadeSubscription,
    ReplayAnswer,
    SubscriptionItem,
    SubscriptionList,
    SubscriptionReport,
    TestOutcome,
)

ContentName: TypeAlias = EventContent | Literal["item", "facts"]

_ITEM = msgspec.json.Decoder(SubscriptionItem).decode
_MADE = msgspec.json.Decoder(MadeSubscription).decode

FILTER = ("types", "queues", "states", "tags")
LIMITS = ("in_flight", "per_second")
TEST_WAIT, REPLAY_WAIT = timedelta(seconds=20), timedelta(seconds=60)
"""How long a sink may take to answer, and a server to look through a span of time."""


class SubscriptionTerms(TypedDict, total=False):
    """What may be said of a subscription besides its name and URL. None of a list lets through all."""

    types: Iterable[str] | None
    queues: Iterable[str] | None
    states: Iterable[str] | None
    tags: Iterable[str] | None
    include: ContentName
    batch: int
    in_flight: int
    per_second: float | None


class SubscriptionChanges(SubscriptionTerms, total=False):
    """What may be changed of a subscription."""

    url: str


def create(name: str, url: str, terms: SubscriptionTerms, secret: str | None) -> Call[MadeSubscription]:
    """Repeatable: it has a key of its own. Only the first answer has the secret."""
    check_options("subscriptions.create", terms, SubscriptionTerms.__optional_keys__)
    body = {"name": name, **_body({"url": url, **terms})}
    body |= {} if secret is None else {"secret": secret}
    key = {"Idempotency-Key": secrets.token_hex(16)}
    return Call("POST", "/v1/subscriptions", _MADE, body=msgspec.json.encode(body), headers=key)


def subscriptions() -> Call[tuple[SubscriptionItem, ...]]:
    return Call("GET", "/v1/subscriptions", lambda raw: msgspec.json.decode(raw, type=SubscriptionList).subscriptions)


def get(name: str) -> Call[SubscriptionReport]:
    return Call("GET", path_of("subscriptions", name), msgspec.json.Decoder(SubscriptionReport).decode)


def change(name: str, changes: SubscriptionChanges) -> Call[SubscriptionItem]:
    if not changes:
        raise Invalid(f"subscription {name}: nothing to change; name at least one of its terms")
    check_options("subscriptions.update", changes, SubscriptionChanges.__optional_keys__)
    return Call("PATCH", path_of("subscriptions", name), _ITEM, body=msgspec.json.encode(_body(changes)))


def pause(name: str) -> Call[SubscriptionItem]:
    return Call("POST", path_of("subscriptions", name, "pause"), _ITEM)


def resume(name: str) -> Call[SubscriptionItem]:
    return Call("POST", path_of("subscriptions", name, "resume"), _ITEM)


def test(name: str) -> Call[TestOutcome]:
    """Not repeatable: each one sends an event."""
    path = path_of("subscriptions", name, "test")
    return Call("POST", path, msgspec.json.Decoder(TestOutcome).decode, repeatable=False, wait=TEST_WAIT)


def rotate(name: str, secret: str | None) -> Call[MadeSubscription]:
    """Not repeatable: each one makes a secret."""
    body = msgspec.json.encode({} if secret is None else {"secret": secret})
    return Call("POST", path_of("subscriptions", name, "rotate"), _MADE, body=body, repeatable=False)


def replay(
    name: str, event: str | None, since: datetime | None, until: datetime | None, *, dead: bool
) -> Call[ReplayAnswer]:
    """Repeatable: what is to be delivered again already, is so once."""
    asked = {"event": event, "from": since, "to": until, "dead": dead or None}
    body = msgspec.json.encode({name: value for name, value in asked.items() if value is not None})
    decode = msgspec.json.Decoder(ReplayAnswer).decode
    return Call("POST", path_of("subscriptions", name, "replay"), decode, body=body, wait=REPLAY_WAIT)


def deliveries(name: str, before: datetime | None, limit: int | None) -> Call[DeliveryPage]:
    query = query_of(before=None if before is None else before.isoformat(), limit=limit)
    path = path_of("subscriptions", name, "deliveries")
    return Call("GET", path, msgspec.json.Decoder(DeliveryPage).decode, query=query)


def delete(name: str) -> Call[None]:
    """Not repeatable: a second one would find nothing to remove."""
    return Call("DELETE", path_of("subscriptions", name), lambda _: None, repeatable=False)


def _body(terms: Mapping[str, Any]) -> dict[str, object]:
    """Terms in the shape of the API: only what is said."""
    lists = {name: _listed(terms[name]) for name in FILTER if name in terms}
    limits = {name: terms[name] for name in LIMITS if name in terms}
    body = {name: terms[name] for name in ("include", "batch") if name in terms}
    body |= {"sink": sink_of(terms["url"])} if "url" in terms else {}
    return body | ({"filter": lists} if lists else {}) | ({"limits": limits} if limits else {})


def _listed(values: Iterable[str] | None) -> list[str] | None:
    if isinstance(values, str):
        raise Invalid(f"write [{values!r}]: a list of names is wanted, not one name")
    return None if values is None else list(values)
