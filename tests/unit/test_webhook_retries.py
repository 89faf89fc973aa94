"""When a delivery is tried again, and when a sink's circuit opens, probes and closes."""

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.circuit import OPENS_AFTER, PROBE_PAUSES, Circuit
from penstock.events.retries import ATTEMPTS, PAUSES, pause_after
from penstock.testing.clock import START

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def test_ten_attempts_are_made_over_about_75_hours() -> None:
    assert ATTEMPTS == 10
    assert 75 * HOUR < sum(PAUSES, timedelta()) < 76 * HOUR


def test_the_first_attempt_is_made_at_once_and_there_is_none_after_the_last() -> None:
    rng = random.Random(1)
    assert pause_after(0, rng) == timedelta(0)
    assert pause_after(ATTEMPTS - 1, rng) is not None
    assert pause_after(ATTEMPTS, rng) is None


@given(st.integers(1, ATTEMPTS - 1), st.randoms(use_true_random=False))
def test_a_pause_is_jittered_by_a_fifth(attempts: int, rng: random.Random) -> None:
    pause = pause_after(attempts, rng)
    assert pause is not None
    assert 0.8 * PAUSES[attempts] <= pause <= 1.2 * PAUSES[attempts]


def test_the_jitter_spreads_over_its_whole_range() -> None:
    rng = random.Random(1)
    pauses = [pause / PAUSES[3] for _ in range(1000) if (pause := pause_after(3, rng))]
    assert min(pauses) < 0.82
    assert max(pauses) > 1.18


@pytest.mark.parametrize(
    ("attempts", "wish", "least", "most"),
    [(1, HOUR, HOUR, HOUR), (1, 30 * DAY, DAY, DAY), (9, HOUR, 0.8 * DAY, 1.2 * DAY), (1, -HOUR, 0 * HOUR, HOUR)],
)
def test_a_longer_pause_that_the_sink_asks_for_counts_up_to_a_day(
    attempts: int, wish: timedelta, least: timedelta, most: timedelta
) -> None:
    pause = pause_after(attempts, random.Random(1), wish)
    assert pause is not None
    assert least <= pause <= most


def test_asking_for_a_pause_gives_no_further_attempt() -> None:
    assert pause_after(ATTEMPTS, random.Random(1), HOUR) is None


def failed(times: int, circuit: Circuit | None = None) -> Circuit:
    circuit = circuit or Circuit()
    for _ in range(times):
        circuit = circuit.after_failure(START, random.Random(1))
    return circuit


def test_a_circuit_opens_with_the_fifth_failure_in_a_row() -> None:
    assert OPENS_AFTER == 5
    assert not failed(4).open
    assert failed(4).admits(START)
    assert failed(5).open
    assert not failed(5).admits(START)


def test_a_success_starts_the_count_again() -> None:
    assert not failed(4, failed(4).after_success()).open
    assert failed(9).after_success() == Circuit()


def test_an_open_circuit_admits_a_probe_when_it_is_due() -> None:
    circuit = failed(5)
    assert circuit.probe_at is not None
    pause = circuit.probe_at - START
    assert 0.8 * PROBE_PAUSES[0] <= pause <= 1.2 * PROBE_PAUSES[0]
    assert circuit.until_probe(START) == pause
    assert circuit.admits(circuit.probe_at)
    assert circuit.until_probe(circuit.probe_at + HOUR) == timedelta(0)


def test_probes_come_ever_more_rarely_and_at_last_every_minute() -> None:
    pauses = [failed(OPENS_AFTER + probes).until_probe(START) for probes in range(10)]
    wanted = [*PROBE_PAUSES, *[PROBE_PAUSES[-1]] * 5]
    assert PROBE_PAUSES[-1] == timedelta(minutes=1)
    assert all(0.8 * want <= pause <= 1.2 * want for pause, want in zip(pauses, wanted, strict=True))


def test_a_sink_that_was_down_for_ten_seconds_is_probed_again_within_ten_more() -> None:
    now, circuit = START, failed(OPENS_AFTER)
    while circuit.probe_at is not None and circuit.probe_at < START + timedelta(seconds=10):
        now = circuit.probe_at
        circuit = circuit.after_failure(now, random.Random(1))
    assert circuit.probe_at is not None
    assert circuit.probe_at < START + timedelta(seconds=20)


def test_a_probe_waits_as_long_as_the_sink_asks() -> None:
    assert failed(4).after_failure(START, random.Random(1), HOUR).until_probe(START) == HOUR
    assert failed(4).after_failure(START, random.Random(1), 9 * DAY).until_probe(START) == DAY
