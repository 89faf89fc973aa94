"""The store seams: shards, the durable truth. Backends are folders beside this file."""

from penstock.store.seam import (
    Capabilities,
    DueSummary,
    PostTickets,
    Shard,
    Share,
    Store,
    role_key,
    schedule_key,
)

__all__ = [
    "Capabilities",
    "DueSummary",
    "PostTickets",
    "Shard",
    "Share",
    "Store",
    "role_key",
    "schedule_key",
]
