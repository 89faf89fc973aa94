"""Job events, delivered to the sinks of subscriptions: envelopes, signatures, addresses, retries.

Each kind of sink has a notifier, behind the seam of `events.notifier`.
"""

from penstock.events.addresses import AddressRules
from penstock.events.cloudevents import OutgoingEvent
from penstock.events.notifier import Delivered, Delivery, Gone, Notifier, Rejected, Unreachable
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
