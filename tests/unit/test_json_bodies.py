"""What is fast about reading JSON strictly is as strict as reading it value by value."""

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.bodies import check_json
from penstock.model.errors import Malformed, TooLarge

DEPTH = 12
VALUES = 50
NO_BOUND = 10**9

Pairs = list[tuple[str, Any]]


class Object:
    """A JSON object as it is written: keys may come twice."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs


KEYS = st.sampled_from(["a", "b", ":", "a:", '"', "\\", '\\"', "{", "é", "\x00"]) | st.text(max_size=3)
NUMBERS = (
    st.integers(-(2**70), 2**70)
    | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**18, 10**19, 12345678901234567890.5, 1e300])
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES_OF_ALL_KINDS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(KEYS, inner), max_size=4).map(Object),
    max_leaves=20,
)


def written(value: Any, separators: tuple[str, str], escape: Callable[[str], str]) -> str:
    """JSON text, with all the freedom that writers have."""
    comma, colon = separators
    match value:
        case Object(pairs=pairs):
            inner = comma.join(f"{escape(key)}{colon}{written(one, separators, escape)}" for key, one in pairs)
            return f"{{{inner}}}"
        case list():
            return f"[{comma.join(written(one, separators, escape) for one in value)}]"
        case str():
            return escape(value)
        case _:
            return json.dumps(value)


def plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def ascii_only(text: str) -> str:
    return json.dumps(text)


def all_escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)) + '"'


def shouted(text: str) -> str:
    return all_escaped(text).upper().replace("\\U", "\\u")


class Refused(Exception):
    """What a reader that looks at each value by itself refuses."""


def depth_and_count(value: Any) -> tuple[int, int]:
    """How deep it nests and how many strings, lists and objects it has; Refused for what is not strict."""
    match value:
        case Object(pairs=pairs):
            if len({key for key, _ in pairs}) < len(pairs):
                raise Refused
            inner = [depth_and_count(one) for _, one in pairs]
            return 1 + max((deep for deep, _ in inner), default=0), 1 + len(pairs) + sum(count for _, count in inner)
        case list():
            inner = [depth_and_count(one) for one in value]
            return 1 + max((deep for deep, _ in inner), default=0), 1 + sum(count for _, count in inner)
        case str():
            return 0, 1
        case int() if not -(2**63) <= value < 2**63:
            raise Refused
        case _:
            return 0, 0


@given(
    VALUES_OF_ALL_KINDS,
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:")]),
    st.sampled_from([plain, ascii_only, all_escaped, shouted]),
)
def test_a_body_is_refused_exactly_where_a_slow_reader_refuses_it(
    value: Any, separators: tuple[str, str], escape: Callable[[str], str]
) -> None:
    body = written(value, separators, escape).encode("utf-8", "surrogatepass")
    try:
        depth, count = depth_and_count(value)
    except Refused:
        with pytest.raises(Malformed):
            check_json(body, NO_BOUND, NO_BOUND)
        return
    check_json(body, depth, count)
    if depth:
        with pytest.raises(Malformed):
            check_json(body, depth - 1, count)
    if count:
        with pytest.raises(TooLarge):
            check_json(body, depth, count - 1)


@pytest.mark.parametrize("fault", ["", '{"b": 1, "b": 2},', "92233720368547758080,"])
def test_no_python_runs_for_each_value_however_a_large_body_is_written(fault: str) -> None:
    body = ("[" + fault + ", ".join(['{"a": [1, 2.5, "\\u003a", 9223372036854775807]}'] * 10_000) + "]").encode()
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        check_json(body, DEPTH, NO_BOUND)
    except Malformed:
        assert fault
    finally:
        sys.setprofile(None)
    # Also what the garbage collector calls meanwhile.
    assert calls < 1000


def test_many_values_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(TooLarge, match=r"limits\.values"):
        check_json(b"[" + b"[]," * VALUES + b"not json", DEPTH, VALUES)
