"""Calls that arrive while a batch runs go together in the next, and each is charged for its own faults alone."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.model.errors import Invalid, StoreUnavailable
from penstock.store.batcher import Batcher


class Locked(StoreUnavailable):
    """Concerns only the calls that need what is locked."""


class Gate:
    """A move that records its batches, waits until it is let through, and fails for the items it is told to."""

    def __init__(self, failing: dict[int, Exception] | None = None) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.started = asyncio.Event()
        self._failing = failing or {}

    async def move(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.started.set()
        await self.open.wait()
        for item in items:
            if item in self._failing:
                raise self._failing[item]
        return [item * 10 for item in items]


async def test_calls_that_arrive_meanwhile_go_together() -> None:
    gate = Gate()
    batcher = Batcher(gate.move)
    first = batcher.submit([1])
    await gate.started.wait()
    others = [batcher.submit([2, 3]), batcher.submit([4])]
    gate.open.set()
    assert [await first, *[await one for one in others]] == [[10], [20, 30], [40]]
    assert gate.batches == [[1], [2, 3, 4]]


async def test_a_batch_is_bounded_but_takes_a_single_larger_call() -> None:
    gate = Gate()
    gate.open.set()
    batcher = Batcher(gate.move, batch_items=2)
    await asyncio.gather(batcher.submit([1, 2, 3]), batcher.submit([4]), batcher.submit([5]), batcher.submit([6]))
    assert gate.batches == [[1, 2, 3], [4, 5], [6]]


async def test_a_fault_is_told_only_to_the_call_that_has_it() -> None:
    gate = Gate({2: Invalid("two")})
    gate.open.set()
    batcher = Batcher(gate.move)
    answers = await asyncio.gather(*(batcher.submit([item]) for item in (1, 2, 3)), return_exceptions=True)
    assert [answers[0], answers[2]] == [[10], [30]]
    assert isinstance(answers[1], Invalid)


async def test_an_outage_fails_the_calls_that_wait_too_if_asked_for() -> None:
    gate = Gate({1: StoreUnavailable("away")})
    batcher = Batcher(gate.move, fail_waiting=True)
    first = batcher.submit([1])
    await gate.started.wait()
    waiting = batcher.submit([2])
    gate.open.set()
    for answer in (first, waiting):
        with pytest.raises(StoreUnavailable):
            await answer
    assert gate.batches == [[1]]


async def test_without_that_the_calls_that_wait_are_served() -> None:
    gate = Gate({1: StoreUnavailable("away")})
    batcher = Batcher(gate.move)
    first = batcher.submit([1])
    await gate.started.wait()
    waiting = batcher.submit([2])
    gate.open.set()
    with pytest.raises(StoreUnavailable):
        await first
    assert await waiting == [20]


async def test_what_is_locked_for_one_call_holds_up_no_other() -> None:
    gate = Gate({2: Locked("held")})
    gate.open.set()
    batcher = Batcher(gate.move, separate=Locked, fail_waiting=True)
    answers = await asyncio.gather(*(batcher.submit([item]) for item in (1, 2, 3)), return_exceptions=True)
    assert [answers[0], answers[2]] == [[10], [30]]
    assert isinstance(answers[1], Locked)


async def test_a_caller_that_goes_away_does_not_disturb_the_others() -> None:
    gate = Gate()
    batcher = Batcher(gate.move)
    first, second = batcher.submit([1]), batcher.submit([2])
    await gate.started.wait()
    first.cancel()
    gate.open.set()
    assert await second == [20]


async def test_close_finishes_what_was_accepted() -> None:
    gate = Gate()
    batcher = Batcher(gate.move)
    answer = batcher.submit([1])
    gate.open.set()
    await batcher.close()
    assert answer.result() == [10]
