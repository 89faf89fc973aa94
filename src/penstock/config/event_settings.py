"""Settings of the journal and of webhooks."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model.names import whole


class EventSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The journal of state changes."""

    keep: Annotated[
        bool,
        Meta(
            description="Write every state change of every job to the journal. Without it there are no streams, "
            "subscriptions and history. The same for all processes."
        ),
    ] = True


class WebhookSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where job events may be delivered to. Addresses are judged when a subscription is made and at every connect."""

    allow: Annotated[
        tuple[str, ...],
        Meta(
            description="Networks of your own that webhooks may be sent to, such as `10.0.0.0/8`, besides the public "
            "internet. This machine itself is allowed while the server listens on loopback only."
        ),
    ] = ()
    http: Annotated[
        bool, Meta(description="Send webhooks to `http://` URLs too. To this machine itself they need not be https.")
    ] = False
    source: Annotated[
        str,
        whole(
            r"[\x21-\x7e]+",
            max_length=255,
            description="Name of this Penstock system in the events it sends: a URI, as `source` of every CloudEvent.",
        ),
    ] = "penstock"
