"""The delay before a failed call is tried again: doubled with each failure, bounded and jittered. Pure."""

import random

MOST_DOUBLINGS = 10


def backoff_seconds(failures: int, first: float, longest: float, rng: random.Random) -> float:
    """Seconds to wait after so many earlier failures: between half and all of `first`, 2 `first`, 4 `first`, … .

    Never more than `longest`. The jitter keeps many processes from trying at the same moment.
    """
    whole = min(longest, first * 2 ** min(failures, MOST_DOUBLINGS))
    return rng.uniform(whole / 2, whole)
