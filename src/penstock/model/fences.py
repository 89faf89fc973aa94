"""Fences over the epochs of a shard: one integer, in which every fence of a later epoch is above all earlier ones.

The low bits of a fence count the claims and losses of a job. The bits above are the epoch of its shard, which is 0
until the shard has been restored. An epoch is the instant at which it was raised, in seconds, and not a number counted
up: two restores from the same backup begin at the same count, and their fences must differ all the same. As no job is
claimed four million times in a second, the low bits never catch up with the next epoch.
"""

from datetime import UTC, datetime

EPOCH_SHIFT = 22
"""31 bits of seconds since EPOCHS_BEGIN are left below 2**53, up to which readers of JSON count exactly: until 2094."""

CLAIMS_MASK = (1 << EPOCH_SHIFT) - 1
"""The bits of a fence that count."""

EPOCHS_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def claims_of(fence: int) -> int:
    """How often the fence has grown by one, over all epochs."""
    return fence & CLAIMS_MASK


def epoch_of(fence: int) -> int:
    """The epoch of the shard when the fence was given."""
    return fence >> EPOCH_SHIFT


def next_epoch(before: int, at: datetime) -> int:
    """The epoch that a shard raised at this instant has from then on; always a later one."""
    return max(before + 1, int((at - EPOCHS_BEGIN).total_seconds()))
