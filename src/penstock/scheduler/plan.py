"""How many tickets each line may get. Pure."""

from collections.abc import Iterable, Mapping

from penstock.model.job import BacklogKey

PASS_JOBS = 2000
"""Most tickets of one line in one pass, so that one long backlog does not hold up the others."""


def window_room(
    backlog: Iterable[BacklogKey], paused: frozenset[str], depths: Mapping[BacklogKey, int], window: int
) -> dict[BacklogKey, int]:
    """For each line with jobs that wait for a ticket, how many may get one now; lines without room are left out."""
    free = {line: min(PASS_JOBS, window - depths.get(line, 0)) for line in backlog if line.queue not in paused}
    return {line: jobs for line, jobs in free.items() if jobs > 0}
