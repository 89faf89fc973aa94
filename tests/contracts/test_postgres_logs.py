"""Logs in PostgreSQL beyond the contract: many writers at once, and what its text cannot hold."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.model.job import LogLine
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import StoreStage
from tests.postgres import new_store


@pytest.fixture
async def stage() -> AsyncIterator[StoreStage]:
    clock = SimulatedClock()
    async with new_store(18, clock) as store:
        yield StoreStage(store, clock)


async def test_lines_that_come_at_once_are_all_kept_each_call_s_together(stage: StoreStage) -> None:
    lease, at = await stage.run_job(), stage.clock.now()
    calls = [[LogLine(at, "stdout", f"{call}.{line}") for line in range(3)] for call in range(20)]
    async with asyncio.timeout(60):
        assert all(await asyncio.gather(*(stage.store.append_log(lease, lines, 9999) for lines in calls)))
    kept, end = await stage.store.read_log(lease.job, 0, 99)
    assert end == 60
    together = [kept[start : start + 3] for start in range(0, 60, 3)]
    assert sorted(together, key=str) == sorted(calls, key=str)


async def test_a_nul_in_a_line_is_shown_and_costs_no_other_line(stage: StoreStage) -> None:
    lease = await stage.run_job()
    lines = [LogLine(stage.clock.now(), "stdout", text) for text in ("before", "a\0b", "\N{SNOWMAN}")]
    assert await stage.store.append_log(lease, lines, 99)
    kept, _ = await stage.store.read_log(lease.job, 0, 9)
    assert [line.text for line in kept] == ["before", "a␀b", "\N{SNOWMAN}"]


async def test_a_log_is_read_after_its_job_has_ended(stage: StoreStage) -> None:
    lease = await stage.run_job()
    line = LogLine(stage.clock.now(), "stdout", "done", 1)
    await stage.store.append_log(lease, [line], 99)
    await stage.settle(lease)
    assert await stage.store.read_log(lease.job, 0, 9) == ([line], 1)
