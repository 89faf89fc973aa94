"""How many tickets each queue may get. Pure."""

from collections.abc import Iterable, Mapping

PASS_JOBS = 2000
"""Most tickets of one queue in one pass, so that one long backlog does not hold up the others."""


def room(backlog: Iterable[str], paused: frozenset[str], depths: Mapping[str, int], window: int) -> dict[str, int]:
    """For each queue with jobs that wait for a ticket, how many may get one now; queues without room are left out."""
    free = {queue: min(PASS_JOBS, window - depths.get(queue, 0)) for queue in backlog if queue not in paused}
    return {queue: jobs for queue, jobs in free.items() if jobs > 0}
