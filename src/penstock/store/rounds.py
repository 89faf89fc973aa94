"""Small tools for moves that take many items at once."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_rounds(
    items: Sequence[Item], subject: Callable[[Item], Hashable], move: Callable[[Sequence[Item]], list[Answer]]
) -> list[Answer]:
    """Move all items, in rounds that hold each subject once: a statement over many rows would pick any of its doubles.

    Answers are in the order of the items; of two for one subject, the first is moved first.
    """
    rounds = _rounds([subject(item) for item in items])
    if len(rounds) == 1:
        return move(items)
    answers: dict[int, Answer] = {}
    for positions in rounds:
        answers |= zip(positions, move([items[position] for position in positions]), strict=True)
    return [answers[position] for position in range(len(items))]


async def run_rounds(
    items: Sequence[Item],
    subject: Callable[[Item], Hashable],
    move: Callable[[Sequence[Item]], Awaitable[list[Answer]]],
) -> list[Answer]:
    """What `in_rounds` does, for a move that has to be awaited."""
    subjects = [subject(item) for item in items]
    if len(set(subjects)) == len(items):
        return await move(items)
    answers: dict[int, Answer] = {}
    for positions in _rounds(subjects):
        answers |= zip(positions, await move([items[position] for position in positions]), strict=True)
    return [answers[position] for position in range(len(items))]


def _rounds(subjects: Sequence[Hashable]) -> list[list[int]]:
    rounds: list[list[int]] = []
    met: dict[Hashable, int] = {}
    for position, subject in enumerate(subjects):
        number = met.get(subject, 0)
        met[subject] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(position)
    return rounds
