"""Whether a shard is well, decided from answers alone."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from penstock.orchestrator.shard import FAILURES_TO_FALL, PROBES_TO_RISE, ShardHealth

START = datetime(2030, 1, 1, tzinfo=UTC)

answers = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30)


def after(answers: list[tuple[bool, bool]], health: ShardHealth | None = None) -> ShardHealth:
    """The health after (ok, probe), one each second."""
    health = health or ShardHealth(True, START)
    for number, (ok, probe) in enumerate(answers, 1):
        health = health.note(ok, START + timedelta(seconds=number), probe=probe)
    return health


def test_one_failure_is_no_outage() -> None:
    assert after([(False, True)]).healthy
    assert after([(False, False), (True, False), (False, True), (True, True), (False, False)]).healthy


def test_two_failures_in_a_row_are_one_since_the_second() -> None:
    assert after([(True, True), (False, True), (False, False)]) == ShardHealth(False, START + timedelta(seconds=3))


def test_two_good_probes_in_a_row_end_it() -> None:
    down = [(False, True), (False, True)]
    assert not after([*down, (True, True)]).healthy
    assert not after([*down, (True, True), (False, True), (True, True)]).healthy
    assert after([*down, (True, True), (True, True)]) == ShardHealth(True, START + timedelta(seconds=4))


@given(noise=st.lists(st.booleans()))
def test_nothing_but_probes_ends_an_outage(noise: list[bool]) -> None:
    down = ShardHealth(False, START)
    assert after([(ok, False) for ok in noise], down) == down


@given(answers=answers)
def test_it_turns_only_after_enough_of_the_same_and_at_once_then(answers: list[tuple[bool, bool]]) -> None:
    health, counted = ShardHealth(True, START), 0
    for number, (ok, probe) in enumerate(answers, 1):
        now = START + timedelta(seconds=number)
        before, health = health, health.note(ok, now, probe=probe)
        if before.healthy or probe:
            counted = counted + 1 if ok is not before.healthy else 0
        turned = counted >= (FAILURES_TO_FALL if before.healthy else PROBES_TO_RISE)
        assert (health.healthy is not before.healthy) == turned
        assert health.since == (now if turned else before.since)
        counted = 0 if turned else counted


@given(answers=answers)
def test_two_good_probes_make_any_shard_well(answers: list[tuple[bool, bool]]) -> None:
    assert after([(True, True)] * PROBES_TO_RISE, after(answers)).healthy
