"""Two small tools for moves that take many items at once."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.model.ids import JobId

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_rounds(
    items: Sequence[Item], job: Callable[[Item], JobId], move: Callable[[Sequence[Item]], list[Answer]]
) -> list[Answer]:
    """Move all items, in rounds that hold each job once: a statement over many rows would pick any one of its doubles.

    Answers are in the order of the items; of two for one job, the first is moved first.
    """
    rounds = _rounds([job(item) for item in items])
    if len(rounds) == 1:
        return move(items)
    answers: dict[int, Answer] = {}
    for positions in rounds:
        answers |= zip(positions, move([items[position] for position in positions]), strict=True)
    return [answers[position] for position in range(len(items))]


def _rounds(jobs: Sequence[JobId]) -> list[list[int]]:
    rounds: list[list[int]] = []
    met: dict[JobId, int] = {}
    for position, job in enumerate(jobs):
        number = met.get(job, 0)
        met[job] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(position)
    return rounds
