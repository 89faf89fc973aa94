"""Keys that the SDK makes: they name their home, and no user's key is mistaken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import SHARDS_MAX, ShardId
from penstock.model.sdk_keys import SdkKey, new_sdk_key, read_sdk_key, read_shards, write_shards

numbers = st.integers(0, SHARDS_MAX - 1).map(ShardId)


@given(home=st.none() | numbers)
def test_a_key_tells_its_home(home: ShardId | None) -> None:
    key = new_sdk_key(home)
    assert read_sdk_key(key) == SdkKey(home)
    assert key != new_sdk_key(home)


@given(key=st.text())
def test_no_other_key_is_taken_for_one(key: str) -> None:
    assert read_sdk_key(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "penstock:2:order-7",
        "penstock:2:" + "0" * 31,
        "penstock:4096:" + "0" * 32,
        "penstock:2:" + "0" * 32 + "\n",
        "Penstock:2:" + "0" * 32,
        "penstock:-1:" + "0" * 32,
        "penstock:٢:" + "0" * 32,
    ],
)
def test_what_only_looks_like_one_is_a_users(key: str) -> None:
    assert read_sdk_key(key) is None


@given(weights=st.dictionaries(numbers, st.floats(1e-3, 1e6)))
def test_shards_and_weights_pass_a_header(weights: dict[ShardId, float]) -> None:
    read = read_shards(write_shards(weights))
    assert list(read) == list(weights)
    assert list(read.values()) == pytest.approx(list(weights.values()), rel=1e-5)


@given(text=st.text())
def test_a_header_that_is_none_is_read_as_nothing_or_as_what_it_says(text: str) -> None:
    assert all(0 <= number < 10_000 and weight > 0 for number, weight in read_shards(text).items())
