"""What may be a result, where in a value it cannot be one, and how little is done for one that is far too large."""

import asyncio
import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, NoReturn, Protocol, cast

import msgspec
import pytest

from penstock.model.results import ResultMisfit, ReturnType, check_written, least_bytes
from penstock.worker.executor.executor import LARGE_BYTES, take_result
from penstock.worker.executor.run import Run

MOST = 100_000


@dataclass
class Row:
    name: str
    price: float | None = None


class Page(msgspec.Struct):
    rows: list[Row]


class Size(Enum):
    SMALL = "small"


class Shape(Protocol):
    area: float


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "result is NaN"),
        (-math.inf, "result is -Infinity"),
        ({"items": [{"price": 1.0}, {"price": math.inf}]}, "result.items[1].price is Infinity"),
        ({"a b": (1, None, math.nan)}, "result['a b'][2] is NaN"),
        (Page([Row("lamp", None), Row("desk", math.nan)]), "result.rows[1].price is NaN"),
        ({"raw": msgspec.Raw(b"null"), "sum": math.nan}, "result.sum is NaN"),
    ],
)
@pytest.mark.parametrize("annotation", [Any, float])
def test_a_number_that_json_has_not_is_named_with_its_place(value: object, place: str, annotation: Any) -> None:
    with pytest.raises(ResultMisfit) as caught:
        ReturnType(annotation).write(value, MOST)
    assert str(caught.value).startswith(place + ",")


@pytest.mark.parametrize(
    ("value", "annotation", "words"),
    [
        ("5", int, "Expected `int`, got `str`"),
        (None, str, "Expected `str`, got `null`"),
        (5, None, "Expected `null`, got `int`"),
        ([1, "two"], list[int], "Expected `int`, got `str` - at `result[1]`"),
        (Row("lamp"), Page, "Object missing required field `rows`"),
    ],
)
def test_a_value_is_held_to_the_annotation(value: object, annotation: Any, words: str) -> None:
    with pytest.raises(ResultMisfit, match="the result is not what the handler declares: ") as caught:
        ReturnType(annotation).write(value, MOST)
    assert str(caught.value).endswith(words)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (None, None),
        (5, float),
        (Decimal("0.5"), Decimal),
        (Page([Row("lamp", 9.5), Row("desk")]), Page),
        ({1: Size.SMALL}, dict[int, Size]),
        ((1, "a"), tuple[int, str]),
        ([1, 2], Iterable[int]),
        (None, NoReturn),
        ({"area": 1}, Shape),
        (None, Any),
        ({"null": None}, Any),
    ],
)
def test_what_is_declared_is_taken(value: object, annotation: Any) -> None:
    assert ReturnType(annotation).write(value, MOST) == msgspec.json.encode(value)


@pytest.mark.parametrize(
    "large",
    [
        "x" * 2 * MOST,
        [0] * MOST,
        {number: None for number in range(MOST)},
        [["x" * 999] * 999],
        Page([Row("x" * 2 * MOST)]),
    ],
    ids=["text", "list", "dict", "nested", "struct"],
)
def test_what_is_far_too_large_is_refused_before_it_is_encoded(large: object) -> None:
    unencodable = object()
    with pytest.raises(ResultMisfit, match=r"more than 100,000 bytes \(limits.body_bytes\)"):
        ReturnType(Any).write([unencodable, large], MOST)


def test_what_is_too_large_only_when_written_is_refused_too() -> None:
    with pytest.raises(ResultMisfit, match="more than 100,000 bytes"):
        ReturnType(str).write("\0" * (MOST // 2), MOST)


@pytest.mark.parametrize(
    "value", ["ä" * 100, [1, [2.5, None]], {"a": {"b": [Row("lamp")]}}, Page([]), {1, 2}, b"bytes"]
)
def test_the_lower_bound_is_one(value: object) -> None:
    assert least_bytes(value, MOST) <= len(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("written", "words"),
    [(b'{"a": [1, -Infinity]}', r"result.a\[1\] is -Infinity"), (b'"' + b"x" * MOST + b'"', "more than 100,000 bytes")],
)
def test_what_a_program_wrote_is_held_to_the_same(written: bytes, words: str) -> None:
    with pytest.raises(ResultMisfit, match=words):
        check_written(written, MOST)


class Taker:
    """A run that only notes where its value was looked at."""

    thread: int | None = None

    def returned(self, _value: object) -> None:
        self.thread = threading.get_ident()


@pytest.mark.parametrize(("size", "on_the_loop"), [(10, True), (2 * LARGE_BYTES, False)])
def test_a_large_value_is_not_looked_at_on_the_event_loop(size: int, on_the_loop: bool) -> None:
    taker = Taker()
    asyncio.run(take_result(cast(Run, taker), "x" * size))
    assert (taker.thread == threading.get_ident()) is on_the_loop
