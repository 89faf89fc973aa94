"""The shape of params: what a signature becomes, and that a server's check and a worker's decoding agree."""

import inspect
import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NotRequired, Optional, TypedDict, Union
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import Meta, Struct

from penstock.model.errors import Invalid, InvalidParams
from penstock.model.params import Signature
from penstock.model.schema import checker


class Context:
    __penstock_context__: ClassVar[bool] = True


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Point:
    x: int
    y: int = 0
    labels: list[str] = field(default_factory=list)


class Options(TypedDict):
    dry: bool
    level: NotRequired[int]


class Closed(Struct, forbid_unknown_fields=True, rename="kebab"):
    first_name: str
    colour: Colour = Colour.RED


class Tree(Struct):
    value: int
    children: list["Tree"] = []
    parent: Optional["Tree"] = None


class Circle(Struct, tag="circle"):
    radius: float


class Square(Struct, tag="square"):
    side: float


class Row(NamedTuple):
    a: int
    b: str = ""


class Packed(Struct, array_like=True):
    a: int
    b: float = 0.0


async def thumbnail(url: str, width: int = 256, *, crop: bool = False) -> str:
    return url


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(InvalidParams) as caught:
        call()
    return caught.value.message


# -- declaring


def test_a_context_comes_first_and_is_no_param() -> None:
    def plain(a: int) -> None: ...
    def with_context(context: Context, a: int) -> None: ...
    def alone(context: Context, /) -> None: ...

    assert not Signature.of(plain).takes_context
    assert Signature.of(with_context).takes_context
    assert Signature.of(with_context).schema()["properties"].keys() == {"a"}
    assert Signature.of(alone).decode(b"{}") == {}


def test_what_cannot_be_given_by_name_is_refused_at_declaration() -> None:
    def positional(a: int, /, b: int) -> None: ...
    def variable(*files: str) -> None: ...
    def late(a: int, context: Context) -> None: ...
    def custom(a: threading.Lock) -> None: ...
    def unknown(a: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function, word in ((positional, "a: int"), (variable, "files"), (late, "'context'"), (unknown, "Missing")):
        with pytest.raises(Invalid, match=word) as caught:
            Signature.of(function)
        assert function.__name__ in caught.value.message
    with pytest.raises(Invalid, match=r"'custom': parameter 'a' has no form in JSON: .*lock"):
        Signature.of(custom)


def test_what_is_not_annotated_may_be_anything() -> None:
    def loose(a, b=1): ...

    assert Signature.of(loose).decode(b'{"a": [1, {"x": null}]}') == {"a": [1, {"x": None}]}


# -- the schema


def test_the_schema_tells_names_types_and_defaults() -> None:
    assert Signature.of(thumbnail).schema() == {
        "title": "thumbnail",
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "width": {"type": "integer", "default": 256},
            "crop": {"type": "boolean", "default": False},
        },
        "required": ["url"],
        "additionalProperties": False,
    }


def test_classes_lie_under_defs() -> None:
    def draw(tree: Tree, point: Point, colour: Colour = Colour.RED) -> None: ...

    schema = Signature.of(draw).schema()
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema["properties"]["colour"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert schema["$defs"].keys() == {"Tree", "Point", "Colour"}


def test_a_class_may_have_the_name_of_the_handler() -> None:
    def Tree(tree: globals()["Tree"]) -> None: ...  # type: ignore[valid-type]  # noqa: N802

    schema = Signature.of(Tree).schema()
    assert schema["properties"].keys() == {"tree"}
    checker(schema)(b'{"tree": {"value": 1}}')
    refused(lambda: checker(schema)(b'{"tree": {"value": "x"}}'))


def test_a_default_without_a_form_in_json_is_left_out() -> None:
    def odd(a: Any = object(), b: int = 2) -> None: ...  # noqa: B008

    assert Signature.of(odd).schema()["properties"] == {"a": {}, "b": {"type": "integer", "default": 2}}


def test_instants_say_their_format() -> None:
    def when(at: datetime, every: list[time], until: datetime | None = None) -> None: ...

    properties = Signature.of(when).schema()["properties"]
    assert properties["at"] == {"type": "string", "format": "date-time"}
    assert properties["every"]["items"] == {"type": "string", "format": "time"}
    assert properties["until"]["anyOf"][0]["format"] == "date-time"


# -- decoding


def test_decode_gives_only_what_was_given() -> None:
    signature = Signature.of(thumbnail)
    assert signature.decode(b'{"url": "x"}') == {"url": "x"}
    assert signature.decode(b'{"crop": true, "url": "x", "width": 1}') == {"url": "x", "width": 1, "crop": True}


def test_decode_gives_the_annotated_types() -> None:
    def many(at: datetime, point: Point, colour: Colour, key: UUID, sizes: set[Size]) -> None: ...

    assert Signature.of(many).decode(
        b'{"at": "2030-01-01T00:00:00Z", "point": {"x": 1}, "colour": "blue", "sizes": [1, 1],'
        b'"key": "0190a6e2-0000-7000-8000-000000000000"}'
    ) == {
        "at": datetime.fromisoformat("2030-01-01T00:00:00+00:00"),
        "point": Point(1),
        "colour": Colour.BLUE,
        "key": UUID("0190a6e2-0000-7000-8000-000000000000"),
        "sizes": {Size.SMALL},
    }


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b'{"url": 1}', r"\$\.url"),
        (b'{"url": "x", "width": "wide"}', r"\$\.width"),
        (b'{"url": "x", "width": 1.5}', r"\$\.width"),
        (b'{"url": "x", "width": null}', r"\$\.width"),
        (b"{}", "`url`"),
        (b"null", "`url`"),
        (b'{"url": "x", "heigth": 1}', "`heigth`"),
        (b'["x"]', "object"),
        (b'{"url": NaN}', "malformed"),
        (b'{"url": "x", "width": 1e999}', "width|range"),
        (b"", "trunc"),
        (b'{"url": ' + b"[" * 100_000, "nested too deeply|Expected"),
    ],
)
def test_what_does_not_fit_is_named_on_both_sides(raw: bytes, word: str) -> None:
    signature = Signature.of(thumbnail)
    for check in (signature.decode, checker(signature.schema())):
        with pytest.raises(InvalidParams, match=word):
            check(raw)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    def loose(a: Any) -> None: ...

    signature = Signature.of(loose)
    for check in (signature.decode, checker(signature.schema())):
        with pytest.raises(InvalidParams, match="nested too deeply"):
            check(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_null_stands_for_no_params() -> None:
    def nothing() -> None: ...

    assert Signature.of(nothing).decode(b"null") == {}
    checker(Signature.of(nothing).schema())(b"null")


def test_more_named_arguments_are_taken_where_the_function_takes_them() -> None:
    def labelled(name: str, **labels: int) -> None: ...

    signature = Signature.of(labelled)
    assert signature.decode(b'{"name": "x", "a": 1, "b": 2}') == {"name": "x", "a": 1, "b": 2}
    assert json.loads(signature.encode(("x",), {"a": 1})) == {"name": "x", "a": 1}
    for check in (signature.decode, checker(signature.schema())):
        with pytest.raises(InvalidParams, match="`a`"):
            check(b'{"name": "x", "a": "1"}')


def test_a_further_argument_cannot_take_the_place_of_the_context() -> None:
    def labelled(context: Context, **labels: int) -> None: ...

    signature = Signature.of(labelled)
    assert "context" in refused(lambda: signature.decode(b'{"context": 1}'))
    assert "context" in refused(lambda: signature.encode((), {"context": 1}))


# -- encoding


def test_a_call_is_encoded_by_name() -> None:
    signature = Signature.of(thumbnail)
    assert json.loads(signature.encode(("x",), {})) == {"url": "x"}
    assert json.loads(signature.encode(("x", 5), {"crop": True})) == {"url": "x", "width": 5, "crop": True}
    assert json.loads(signature.encode((), {"url": "é\n"})) == {"url": "é\n"}


@pytest.mark.parametrize(
    ("args", "kwargs", "word"),
    [
        ((), {}, "url"),
        (("x", 1, True), {}, "too many"),
        (("x",), {"url": "y"}, "url"),
        (("x",), {"heigth": 1}, "heigth"),
        ((1,), {}, "url"),
        (("x", "wide"), {}, "width"),
        (("x", True), {}, "width"),
        (("x", math.nan), {}, "width"),
        (("\ud800",), {}, "params|url"),
    ],
)
def test_a_wrong_call_is_refused(args: tuple[object, ...], kwargs: dict[str, object], word: str) -> None:
    assert word.split("|")[0] in refused(lambda: Signature.of(thumbnail).encode(args, kwargs))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, {"x": [math.nan]}, object(), {1, math.inf}])
def test_what_json_cannot_say_is_refused_even_where_anything_goes(value: object) -> None:
    def loose(a: Any, b: float | None = None) -> None: ...

    assert "'a'" in refused(lambda: Signature.of(loose).encode((value,), {}))


def test_equal_calls_are_equal_as_json_however_they_are_given() -> None:
    def handler(a: int, b: float | None = 1.5, *, c: str = "") -> None: ...

    signature = Signature.of(handler)
    assert signature.encode((), {"c": "é", "a": 1, "b": 2.5}) == signature.encode((1, 2.5), {"c": "é"})
    assert signature.encode((), {"c": "x", "a": 1}) == b'{"a":1,"c":"x"}'
    assert signature.encode((1, None), {}) == b'{"a":1,"b":null}'


def test_a_value_that_holds_itself_is_refused() -> None:
    def loose(a: Any) -> None: ...

    ring: list[object] = []
    ring.append(ring)
    refused(lambda: Signature.of(loose).encode((ring,), {}))


def test_encode_and_decode_are_inverse() -> None:
    def many(at: datetime, tree: Tree, shape: Circle | Square, raw: bytes, by: dict[int, Decimal]) -> None: ...

    given = {
        "at": datetime.fromisoformat("2030-01-01T00:00:00+02:00"),
        "tree": Tree(1, [Tree(2)]),
        "shape": Square(2.0),
        "raw": b"\x00\xff",
        "by": {10**30: Decimal("1.50")},
    }
    signature = Signature.of(many)
    assert signature.decode(signature.encode((), given)) == given


# -- both sides agree


class Kind(NamedTuple):
    """A type, and JSON values that often fit it."""

    hint: Any
    values: SearchStrategy[Any]
    examples: tuple[Any, ...] = ()


def kind(hint: Any, *examples: Any) -> Kind:
    return Kind(hint, st.sampled_from(examples), examples)


UUID_TEXT = "0190a6e2-0000-7000-8000-000000000000"

LEAVES = [
    kind(Any, 1, "x", None, [1], {"a": 1}),
    kind(bool, True, False),
    Kind(int, st.integers(), (0, -1, 2**64, 10**40)),
    kind(float, 1.5, 0, -2, 1e300),
    Kind(str, st.text(max_size=5), ("", "a", "é\0")),
    kind(None, None),
    kind(Annotated[int, Meta(ge=0, lt=10)], -1, 0, 9, 10),
    kind(Annotated[float, Meta(gt=0, le=1, multiple_of=0.5)], 0, 0.5, 0.7, 1, 1.5),
    kind(Annotated[str, Meta(min_length=2, max_length=3)], "a", "ab", "abc", "abcd", "ba", "aé"),
    kind(Annotated[list[int], Meta(min_length=1, max_length=2)], [], [1], [1, 2], [1, 2, 3]),
    kind(Annotated[dict[str, int], Meta(min_length=1, max_length=1)], {}, {"a": 1}, {"a": 1, "b": 2}),
    kind(dict[Annotated[str, Meta(max_length=1)], int], {"a": 1}, {"ab": 1}),
    kind(Literal["a", 1, None], "a", 1, None, "b", 2, 1.0, True),
    kind(Literal["only"], "only", "other"),
    kind(Colour, "red", "green", "RED"),
    kind(Size, 1, 2, 3, "1", 1.0),
    kind(datetime, "2030-01-01T00:00:00Z", "2030-01-01T00:00:00", "2030-13-01T00:00:00Z", "2030-01-01"),
    kind(date, "2030-01-01", "2030-02-30", "x"),
    kind(time, "10:00:00", "10:00:00Z", "25:00:00"),
    kind(timedelta, "PT1S", "P1D", "1s"),
    kind(UUID, UUID_TEXT, UUID_TEXT.replace("-", ""), "x"),
    kind(Decimal, "1.5", 1.5, 1, "x"),
    kind(bytes, "", "AA==", "AA", "!"),
    kind(tuple[int, str], [1, "a"], [1], [1, "a", 2], ["a", 1]),
    kind(tuple[()], [], [1]),
    kind(tuple[int, ...], [], [1, 2], ["a"]),
    kind(set[int], [], [1, 1], ["a"]),
    kind(Point, {"x": 1}, {"x": 1, "y": 2, "labels": ["a"]}, {"y": 1}, {"x": 1, "z": 1}, {"x": 1, "labels": [1]}),
    kind(Options, {"dry": True}, {"dry": True, "level": 1}, {"level": 1}, {"dry": True, "level": "x"}),
    kind(
        Closed, {"first-name": "a"}, {"first_name": "a"}, {"first-name": "a", "x": 1}, {"first-name": "a", "colour": 1}
    ),
    kind(Tree, {"value": 1}, {"value": 1, "children": [{"value": 2, "parent": {"value": 3}}]}),
    kind(Tree, {"value": 1, "children": [{"value": 2, "children": [{}]}]}, {"value": 1, "parent": {"value": "x"}}),
    kind(Circle, {"type": "circle", "radius": 1}, {"type": "square", "radius": 1}, {"radius": 1}, {"type": "circle"}),
    kind(Circle | Square, {"type": "circle", "radius": 1}, {"type": "square", "side": 1}, {"radius": 1}, {"type": "x"}),
    kind(Circle | Square | None, None, {"type": "square", "side": 1}, {"type": "circle", "side": 1}),
    kind(int | str | list[int], 1, "a", [1], ["a"], 1.5),
    kind(int | float | bool | None, 1, 1.5, True, None, "x"),
    kind(Point | list[Point] | str, {"x": 1}, [{"x": 1}], "x", [1]),
    kind(Row, [1], [1, "a"], [], [1, "a", 2], ["a"]),
    kind(Packed, [1], [1, 2.5], [], [1, 2.5, 3], ["a"]),
]


def pair(two: tuple[Kind, Kind]) -> Kind:
    first, second = two
    return Kind(tuple[(first.hint, second.hint)], st.tuples(first.values, second.values))  # type: ignore[name-defined]


def around(inner: SearchStrategy[Kind]) -> SearchStrategy[Kind]:
    return st.one_of(
        inner.map(lambda one: Kind(list[one.hint], st.lists(one.values, max_size=3))),  # type: ignore[name-defined]
        inner.map(lambda one: Kind(Optional[one.hint], st.none() | one.values)),  # noqa: UP045
        inner.map(lambda one: Kind(dict[str, one.hint], st.dictionaries(st.text(max_size=2), one.values, max_size=2))),  # type: ignore[name-defined]
        st.tuples(inner, inner).map(pair),
    )


KINDS = st.recursive(st.sampled_from(LEAVES), around, max_leaves=4)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def handler(parameters: list[inspect.Parameter]) -> Callable[..., None]:
    def made() -> None: ...

    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made.__annotations__ = {one.name: one.annotation for one in parameters}
    return made


@st.composite
def calls(draw: st.DrawFn) -> tuple[Callable[..., None], dict[str, Any]]:
    """A handler, and params that often fit it."""
    parameters, params = [], {}
    for name in draw(st.lists(st.sampled_from(["a", "b", "größe", "type"]), unique=True, max_size=3)):
        one = draw(KINDS)
        default = draw(st.sampled_from([inspect.Parameter.empty, None]))
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=one.hint))
        if draw(st.integers(0, 9)):
            params[name] = draw(one.values if draw(st.integers(0, 4)) else ANYTHING)
    if not draw(st.integers(0, 4)):
        rest = draw(KINDS)
        parameters.append(inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD, annotation=rest.hint))
        params |= draw(st.dictionaries(st.sampled_from(["x", "y"]), rest.values | ANYTHING, max_size=2))
    if not draw(st.integers(0, 9)):
        params["stray"] = 1
    return handler(parameters), params


def accepts(check: Callable[[bytes], object], raw: bytes) -> bool:
    try:
        check(raw)
    except InvalidParams:
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(calls())
def test_a_server_accepts_exactly_what_a_worker_accepts(call: tuple[Callable[..., None], dict[str, Any]]) -> None:
    function, params = call
    signature = Signature.of(function)
    schema = json.loads(json.dumps(signature.schema()))
    raw = json.dumps(params).encode()
    assert accepts(checker(schema), raw) == accepts(signature.decode, raw)


@pytest.mark.parametrize("one", LEAVES, ids=lambda one: str(one.hint))
def test_both_sides_agree_on_every_example_of_every_type(one: Kind) -> None:
    signature = Signature.of(handler([inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY, annotation=one.hint)]))
    check = checker(signature.schema())
    for value in (value for other in LEAVES for value in other.examples):
        raw = json.dumps({"a": value}).encode()
        assert accepts(check, raw) == accepts(signature.decode, raw), value


UNTOLD = [
    kind(Annotated[str, Meta(max_length=3, pattern="^a")], "ab", "ba", "abcd"),
    kind(dict[Annotated[str, Meta(pattern="^a")], int], {"ab": 1}, {"ba": 1}),
    kind(Annotated[datetime, Meta(tz=True)], "2030-01-01T00:00:00Z", "2030-01-01T00:00:00"),
    kind(Annotated[datetime, Meta(tz=False)], "2030-01-01T00:00:00Z", "2030-01-01T00:00:00"),
    kind(dict[int, str], {"1": "a"}, {"a": "a"}),
    kind(dict[UUID, str], {UUID_TEXT: "a"}, {"a": "a"}),
    kind(Annotated[set[int], Meta(min_length=2, max_length=2)], [1, 1, 2], [1, 1], [1, 2], [1, 2, 3]),
    kind(set[Any], [[1]], [1], [{}]),
    kind(Annotated[bytes, Meta(min_length=2, max_length=4)], "", "AA==", "AAA=", "AAAA", "AAAAAA==", "AAAAAAA="),
]


@pytest.mark.parametrize("one", UNTOLD, ids=lambda one: str(one.hint))
@given(data=st.data())
def test_what_a_schema_cannot_say_passes_the_server(one: Kind, data: st.DataObject) -> None:
    annotated = inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY, annotation=one.hint)
    signature = Signature.of(handler([annotated]))
    raw = json.dumps({"a": data.draw(one.values)}).encode()
    if accepts(signature.decode, raw):
        checker(signature.schema())(raw)


def test_a_union_of_more_than_the_server_can_tell_apart_passes() -> None:
    def either(a: Union[Row, Packed, None] = None) -> None: ...  # noqa: UP007

    schema = {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "string"}]}},
    }
    checker(schema)(b'{"a": "x"}')
    with pytest.raises(Invalid):
        Signature.of(either)
