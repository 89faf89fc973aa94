"""What a policy family wants, before bounds and stabilising waits."""

from msgspec import Struct


class Want(Struct, frozen=True):
    """So many workers, for a reason. Idle ones beyond that are kept for a while; the last one for one of its own."""

    workers: int
    reason: str
    keep_seconds: float = 0.0
    keep_last_seconds: float = 0.0
