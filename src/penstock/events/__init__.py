"""Job events, delivered to the sinks of subscriptions: envelopes, signatures, addresses, retries.

Each kind of sink has a notifier, behind the seam of `events.notifier`. A notifier is loaded when it is first asked for:
the HTTP client of webhooks takes a third of the time that an API needs to start.
"""

from typing import TYPE_CHECKING

from penstock.events.addresses import AddressRules
from penstock.events.cloudevents import OutgoingEvent
from penstock.events.notifier import Delivered, Delivery, Gone, Notifier, Rejected, Unreachable

if TYPE_CHECKING:
    from penstock.events.webhook import WebhookNotifier

__all__ = [
    "AddressRules",
    "Delivered",
    "Delivery",
    "Gone",
    "Notifier",
    "OutgoingEvent",
    "Rejected",
    "Unreachable",
    "WebhookNotifier",
]


def __getattr__(name: str) -> object:
    if name != "WebhookNotifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.events.webhook import WebhookNotifier

    return WebhookNotifier
