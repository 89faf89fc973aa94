"""Schemas that others declared: none breaks the server, keeps it busy or has anything evaluated there."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.model.errors import InvalidParams
from penstock.model.schema import MOST_NODES, checker

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(InvalidParams) as caught:
        call()
    return caught.value.message


def accepts(check: Callable[[bytes], object], raw: bytes) -> bool:
    try:
        check(raw)
    except InvalidParams:
        return False
    return True


WORDS = ["type", "properties", "required", "items", "anyOf", "enum", "$ref", "$defs", "pattern", "minimum", "format"]
SCHEMAS = st.recursive(
    ANYTHING | st.sampled_from(["string", "object", "array", "integer", "#/$defs/a", "(", "date"]),
    lambda inner: (
        st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=2), inner, max_size=4) | st.lists(inner, max_size=2)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(WORDS), SCHEMAS, max_size=4), ANYTHING)
@example({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {})
@example({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, {})
@example({"type": "object", "properties": {"a": {"type": "integer", "minimum": 10**40}}}, {})
@example({"anyOf": []}, {})
def test_no_schema_breaks_the_server(schema: dict[str, Any], params: Any) -> None:
    check = checker(schema)
    accepts(check, json.dumps(params).encode())


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}},
        {"type": "object", "properties": {"a": {"$ref": "#/elsewhere"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"b": {}}, "patternProperties": {"a": {}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {"enum": [1.5, [1]]}}},
        {"type": "object", "properties": {"a": {"type": "string", "format": "email"}}},
        {"properties": "nonsense"},
        {},
    ],
)
def test_what_the_server_does_not_know_it_lets_pass(schema: dict[str, Any]) -> None:
    checker(schema)(b'{"a": "x"}')


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "pattern": "^(x+)+y$"}}},
        {"additionalProperties": {"type": "string", "pattern": "^(x+)+y$"}},
        {"propertyNames": {"pattern": "^(b+)+$"}, "additionalProperties": {"type": "string"}},
    ],
)
def test_patterns_of_others_are_left_to_the_worker(schema: dict[str, Any]) -> None:
    checker({"type": "object", **schema})(b'{"a": "xxxx"}')


def doubling(levels: int, cycle: Iterable[str] = ()) -> dict[str, Any]:
    """Definitions of which each holds the next one twice; the last one may refer to others again."""
    pairs = {
        f"d{level}": {"type": "array", "prefixItems": [ref(f"d{level + 1}")] * 2, "minItems": 2, "maxItems": 2}
        for level in range(levels)
    }
    last = {f"c{number}": ref(name) for number, name in enumerate(cycle)}
    return {**pairs, f"d{levels}": {"type": "object", "properties": last}}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


@pytest.mark.parametrize(
    "huge",
    [
        {"properties": {name: {"type": "object", "properties": {}} for name in ("a", *map(str, range(MOST_NODES)))}},
        {"properties": {"a": {"enum": [str(number) for number in range(MOST_NODES + 1)]}}},
        {"properties": {"a": {"anyOf": [{"const": str(number)} for number in range(MOST_NODES)]}}},
        {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": doubling(30)},
        {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": doubling(10, cycle=["d0"] * 100)},
    ],
)
def test_a_schema_that_would_take_long_to_compile_is_left_to_the_worker(huge: dict[str, Any]) -> None:
    check = checker({"type": "object", "required": ["p"], **huge})
    check(b'{"a": "anything"}')
    assert "object" in refused(lambda: check(b"[]"))


def test_classes_that_refer_to_each_other_are_checked_however_often_they_do() -> None:
    nodes = {
        f"d{level}": {"type": "object", "properties": {"a": ref(f"d{level + 1}"), "b": ref(f"d{level + 1}")}}
        for level in range(30)
    }
    defs = {**nodes, "d30": {"type": "object", "properties": {"a": ref("d0"), "n": {"type": "integer"}}}}
    check = checker({"type": "object", "properties": {"a": ref("d30")}, "$defs": defs})
    check(b'{"a": {"n": 1, "a": {"b": {}}}}')
    assert "int" in refused(lambda: check(b'{"a": {"n": "x"}}'))


def test_a_large_signature_is_still_checked() -> None:
    names = [f"p{number}" for number in range(MOST_NODES // 2 - 1)]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names[:-1]}
    check = checker(schema)
    check(json.dumps(dict.fromkeys(names, 1)).encode())
    assert "int" in refused(lambda: check(json.dumps(dict.fromkeys(names, "x")).encode()))


def test_names_in_a_schema_are_never_evaluated() -> None:
    name = "a'] or __import__('os').abort() or defs['a"
    node = {"type": "object", "properties": {"next": {"$ref": f"#/$defs/{name}"}}, "additionalProperties": False}
    check = checker({"type": "object", "properties": {"a": {"$ref": f"#/$defs/{name}"}}, "$defs": {name: node}})
    check(b'{"a": {"next": {"next": {}}}}')
    assert "next" in refused(lambda: check(b'{"a": {"next": {"next": 1}}}'))


def test_const_is_an_enum_of_one() -> None:
    check = checker({"type": "object", "properties": {"a": {"const": "x"}}})
    check(b'{"a": "x"}')
    refused(lambda: check(b'{"a": "y"}'))
