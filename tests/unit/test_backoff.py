"""The delay before another try: it doubles, is jittered, and has a bound."""

import random

import pytest

from penstock.backoff import backoff_seconds


@pytest.mark.parametrize(("failures", "whole"), [(0, 0.1), (1, 0.2), (4, 1.6), (5, 2.0), (1000, 2.0)])
def test_the_delay_doubles_up_to_its_bound_and_is_jittered_by_half(failures: int, whole: float) -> None:
    rng = random.Random(7)
    delays = [backoff_seconds(failures, 0.1, 2.0, rng) for _ in range(200)]
    assert whole / 2 <= min(delays) < 0.6 * whole
    assert 0.9 * whole < max(delays) <= whole
