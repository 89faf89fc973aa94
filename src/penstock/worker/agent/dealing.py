"""In the agent: which executor gets how many of the jobs that came together. Pure."""

from collections.abc import Sequence


def shares(count: int, held: Sequence[int]) -> list[int]:
    """How many of `count` new jobs each gets that has so many: as if each job went to whoever had the fewest by then.

    The fullest first: one that is above the level at which all could be even gets nothing, and the others share.
    """
    given = [0] * len(held)
    fullest_first = sorted(range(len(held)), key=held.__getitem__, reverse=True)
    for place, one in enumerate(fullest_first):
        rest = fullest_first[place:]
        level = (sum(held[other] for other in rest) + count) // len(rest)
        given[one] = max(0, level - held[one])
        count -= given[one]
    return given
