"""Rounds of a move over many items, each with at most one item of a subject."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_rounds(
    items: Sequence[Item], subject: Callable[[Item], Hashable], move: Callable[[Sequence[Item]], list[Answer]]
) -> list[Answer]:
    """Move all items, in rounds that hold each subject once: one statement would pick any of two rows for a subject.

    Answers are in the order of the items; of two for one subject, the first is moved first.
    """
    subjects = list(map(subject, items))
    if len(set(subjects)) == len(items):
        return move(items)
    answers: dict[int, Answer] = {}
    for positions in _rounds(subjects):
        answers |= zip(positions, move([items[position] for position in positions]), strict=True)
    return [answers[position] for position in range(len(items))]


async def run_rounds(
    items: Sequence[Item],
    subject: Callable[[Item], Hashable],
    move: Callable[[Sequence[Item]], Awaitable[list[Answer]]],
) -> list[Answer]:
    """As `in_rounds`, for an async move."""
    subjects = list(map(subject, items))
    if len(set(subjects)) == len(items):
        return await move(items)
    answers: dict[int, Answer] = {}
    for positions in _rounds(subjects):
        answers |= zip(positions, await move([items[position] for position in positions]), strict=True)
    return [answers[position] for position in range(len(items))]


def _rounds(subjects: Sequence[Hashable]) -> list[list[int]]:
    rounds: list[list[int]] = []
    counts: dict[Hashable, int] = {}
    for position, subject in enumerate(subjects):
        number = counts.get(subject, 0)
        counts[subject] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(position)
    return rounds
