"""The retry budget: a failing dependency is met by a trickle, not by a storm."""

import random
from collections import Counter
from datetime import timedelta

import pytest

from penstock.config import Settings, TimingSettings
from penstock.engine import Engine
from penstock.engine.worker_api import LONGEST_SPREAD, RetryBudget
from penstock.model.job import ErrorCode, JobError
from penstock.model.retry import Retry
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import claim, failure, join, request


def test_retries_of_one_queue_are_spread_and_others_are_not_held_up() -> None:
    budget = RetryBudget(10, random.Random(1))
    waits = [budget.slot("a", 0.0).total_seconds() for _ in range(13)]
    assert waits == pytest.approx([0.0] * 10 + [0.1, 0.2, 0.3])
    assert budget.slot("b", 0.0) == timedelta(0)
    assert budget.slot("a", 0.35).total_seconds() == pytest.approx(0.05)
    assert budget.slot("a", 100.0) == timedelta(0)


@pytest.mark.parametrize("rate", [0.5, 3.0, 100.0])
def test_no_span_of_time_gets_more_than_its_share_and_one_burst(rate: float) -> None:
    budget, rng = RetryBudget(rate, random.Random(1)), random.Random(2026)
    now, due = 0.0, list[float]()
    for _ in range(500):
        now += rng.choice((0.0, 0.0, 0.0, 1 / rate, 4 / rate))
        due.append(now + budget.slot("a", now).total_seconds())
    due.sort()
    for first in range(0, len(due), 7):
        for last in range(first, len(due), 11):
            assert last - first + 1 <= (due[last] - due[first]) * rate + max(1.0, rate) + 1e-3


def test_a_mass_failure_is_spread_over_minutes_and_not_over_hours() -> None:
    budget = RetryBudget(100, random.Random(1))
    waits = [budget.slot("a", 0.0) for _ in range(100_000)]
    assert max(waits) <= LONGEST_SPREAD
    parts = Counter(int(wait / LONGEST_SPREAD * 10) for wait in waits)
    assert all(9_000 < parts[part] < 11_000 for part in range(10))


def test_after_a_mass_failure_the_budget_is_soon_as_it_was() -> None:
    budget = RetryBudget(100, random.Random(1))
    for _ in range(100_000):
        budget.slot("a", 0.0)
    assert budget.slot("a", LONGEST_SPREAD.total_seconds() + 1) == timedelta(0)


class TestWithAnEngine:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(timing=TimingSettings(retries_per_second=2))

    async def test_a_retry_waits_for_the_longer_of_back_off_and_budget(
        self, engine: Engine, clock: SimulatedClock
    ) -> None:
        await join(engine)
        policy = {"kind": "fixed", "delay_seconds": 1.0, "jitter": False}
        await engine.jobs.submit([request("other", {}, retry_policy=policy) for _ in range(6)])
        error = JobError(ErrorCode.RAISED, "down")
        claims = await claim(engine)
        await engine.worker_api.settle([failure(claimed, error) for claimed in claims])
        jobs = [await engine.jobs.get(claimed.job) for claimed in claims]
        waits = [(job.due_at - clock.now()).total_seconds() for job in jobs]
        assert waits == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.5, 2.0])
        assert all(job.retry.kind == Retry.fixed().kind for job in jobs)
