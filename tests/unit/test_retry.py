"""Retry policies: how long to wait, how often, and after which errors not at all."""

import random
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Invalid
from penstock.model.retry import NAMED, Retry, RetryKind, exception_names

policies = st.builds(
    Retry,
    kind=st.sampled_from(RetryKind),
    max_attempts=st.integers(1, 1000),
    delay_seconds=st.floats(0, 31_536_000),
    factor=st.floats(1, 100),
    cap_seconds=st.floats(0, 31_536_000),
    jitter=st.booleans(),
)
attempts = st.integers(1, 1000)
seeds = st.integers(0, 2**32).map(random.Random)


def waits(policy: Retry, count: int = 5) -> list[float]:
    return [policy.wait_after(attempt, random.Random(0)).total_seconds() for attempt in range(1, count + 1)]


def steady(policy: Retry) -> Retry:
    return msgspec.structs.replace(policy, jitter=False)


# -- growth


def test_a_fixed_wait_stays() -> None:
    assert waits(steady(Retry.fixed(2))) == [2, 2, 2, 2, 2]


def test_a_linear_wait_grows_by_the_delay() -> None:
    assert waits(steady(Retry.linear(2))) == [2, 4, 6, 8, 10]


def test_an_exponential_wait_multiplies() -> None:
    assert waits(steady(Retry.exponential(2))) == [2, 4, 8, 16, 32]
    assert waits(steady(Retry.exponential(1, factor=10.0))) == [1, 10, 100, 300, 300]


def test_without_retries_there_is_no_wait() -> None:
    assert Retry.none().max_attempts == 1
    assert waits(Retry.none()) == [0, 0, 0, 0, 0]


# -- bounds


@given(policies, attempts, seeds)
def test_a_wait_is_never_negative_nor_above_the_cap(policy: Retry, attempt: int, rng: random.Random) -> None:
    wait = policy.wait_after(attempt, rng)
    assert timedelta(0) <= wait <= timedelta(seconds=policy.cap_seconds)


@given(policies, attempts, seeds)
def test_jitter_only_shortens(policy: Retry, attempt: int, rng: random.Random) -> None:
    assert policy.wait_after(attempt, rng) <= steady(policy).wait_after(attempt, rng)


@given(policies, attempts, seeds)
def test_without_jitter_waits_never_shrink(policy: Retry, attempt: int, rng: random.Random) -> None:
    policy = steady(policy)
    assert policy.wait_after(attempt, rng) <= policy.wait_after(attempt + 1, rng)


@given(policies, attempts, st.integers(0, 2**32))
def test_the_same_chance_gives_the_same_wait(policy: Retry, attempt: int, seed: int) -> None:
    assert policy.wait_after(attempt, random.Random(seed)) == policy.wait_after(attempt, random.Random(seed))


def test_jitter_spreads_a_crowd_over_the_whole_wait() -> None:
    rng = random.Random(5)
    crowd = [Retry.fixed(100).wait_after(1, rng).total_seconds() for _ in range(1000)]
    tenths = {int(wait // 10) for wait in crowd}
    assert tenths == set(range(10))


def test_a_thousand_attempts_do_not_overflow() -> None:
    steep = Retry.exponential(31_536_000, max_attempts=1000, factor=100.0, cap_seconds=31_536_000.0)
    assert steady(steep).wait_after(1000, random.Random(0)) == timedelta(days=365)


# -- making one


def test_a_delay_may_be_a_duration_or_seconds() -> None:
    assert Retry.fixed(timedelta(minutes=1)) == Retry.fixed(60)
    assert Retry.exponential(max_attempts=7, cap_seconds=9.0) == Retry(max_attempts=7, cap_seconds=9.0)


@pytest.mark.parametrize("kind", RetryKind)
def test_every_kind_has_a_name_on_the_wire(kind: RetryKind) -> None:
    assert NAMED[kind].kind is kind


@given(policies)
def test_a_policy_survives_the_wire(policy: Retry) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Retry) == policy


@pytest.mark.parametrize(
    "raw",
    [
        b'{"max_attempts": 0}',
        b'{"max_attempts": 1001}',
        b'{"delay_seconds": -1}',
        b'{"delay_seconds": 1e10}',
        b'{"factor": 0.5}',
        b'{"cap_seconds": -0.1}',
        b'{"kind": "sometimes"}',
        b'{"attempts": 3}',
    ],
)
def test_a_policy_out_of_bounds_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Retry)


# -- errors that are never tried again


@pytest.mark.parametrize(
    ("error_class", "forbidden"),
    [
        ("builtins.ValueError", True),
        ("app.errors.Gone", True),
        ("elsewhere.Gone", False),
        ("Gone", False),
        ("builtins.UnicodeValueError", False),
        ("ValueError.Inner", False),
    ],
)
def test_named_errors_are_never_tried_again(error_class: str, forbidden: bool) -> None:
    policy = Retry(never=("ValueError", "app.errors.Gone"))
    assert policy.forbids(error_class) is forbidden
    assert not Retry().forbids(error_class)


class Gone(LookupError):
    """An error of an app."""


@pytest.mark.parametrize(
    ("never", "names"),
    [
        ((KeyError, "app.errors.Lost"), ("builtins.KeyError", "app.errors.Lost")),
        ([Gone], (f"{__name__}.Gone",)),
        (KeyError, ("builtins.KeyError",)),
        ("KeyError", ("KeyError",)),
    ],
)
def test_exception_classes_are_named_by_themselves(never: object, names: tuple[str, ...]) -> None:
    policy = Retry.fixed(never=never)
    assert policy.never == names
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Retry) == policy


@pytest.mark.parametrize("never", [(int,), (5,), 5])
def test_what_is_no_exception_is_refused(never: object) -> None:
    with pytest.raises(Invalid, match="never: name exception classes"):
        Retry.fixed(never=never)


def test_an_error_is_forbidden_by_any_class_that_it_is_of() -> None:
    policy = Retry.fixed(never=(LookupError,))
    assert policy.forbids(*exception_names(Gone))
    assert policy.forbids(*exception_names(KeyError))
    assert not policy.forbids(*exception_names(ValueError))
