"""How many tickets each queue may get. Pure."""

from collections.abc import Iterable, Mapping

from penstock.config import TimingSettings

PASS_JOBS = 2000
"""Most tickets of one queue in one pass, so that one long backlog does not hold up the others."""

_OLD_PART = 0.5


def drain_rates(
    rates: Mapping[str, float],
    held: Mapping[str, int],
    posted: Mapping[str, int],
    now_held: Mapping[str, int],
    elapsed: float,
) -> dict[str, float]:
    """Tickets per second taken from each queue: what was held and posted and is not held any more, smoothed."""
    if elapsed <= 0:
        return dict(rates)
    return {
        queue: _OLD_PART * rates.get(queue, 0.0)
        + (1 - _OLD_PART) * max(0, held.get(queue, 0) + posted.get(queue, 0) - now_held.get(queue, 0)) / elapsed
        for queue in {*rates, *held, *posted}
    }


def windows(rates: Mapping[str, float], timing: TimingSettings) -> dict[str, int]:
    """How many tickets the broker may hold per queue: some seconds of drain, and never fewer than the least."""
    return {queue: max(timing.window_jobs, int(rate * timing.window_seconds)) for queue, rate in rates.items()}


def room(
    backlog: Iterable[str], paused: frozenset[str], depths: Mapping[str, int], allowed: Mapping[str, int], least: int
) -> dict[str, int]:
    """For each queue with jobs that wait for a ticket, how many may get one now; queues without room are left out."""
    free = {
        queue: min(PASS_JOBS, allowed.get(queue, least) - depths.get(queue, 0))
        for queue in backlog
        if queue not in paused
    }
    return {queue: jobs for queue, jobs in free.items() if jobs > 0}
