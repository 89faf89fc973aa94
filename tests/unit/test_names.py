"""What text may be a name: the same for every way in, from its first character to its last."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.inspect import Metadata, StrType, StructType, Type, UnionType, type_info

from penstock.api.app import OPERATIONS
from penstock.api.openapi import document
from penstock.api.request import KINDS
from penstock.app import Penstock
from penstock.config import Settings, load
from penstock.model.errors import Invalid, InvalidSetting
from penstock.model.names import FileName, Name, Reason, Tag, check_file_name, is_name, reason_of
from penstock.model.wire.jobs import ContentType, Key

CONTROLS = ["\0", "\n", "a\n", "\na", "a\rb", "\t", "\x1b[0m", "\x7f", "\x85", "\x9b"]


@pytest.mark.parametrize("text", CONTROLS)
@pytest.mark.parametrize("kind", [Name, Tag, FileName, Key, ContentType, Reason])
def test_no_name_holds_a_control_character(kind: Any, text: str) -> None:
    for name in (text, f"text/plain{text}", f"a{text}"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(name, kind)


@pytest.mark.parametrize("text", ["red", "zwei Wörter", "日本", "a/b", "💧", "'; DROP TABLE jobs", "%00"])
def test_a_tag_is_any_line_of_text(text: str) -> None:
    assert msgspec.convert(text, Tag) == text


def test_every_pattern_of_a_request_reaches_to_the_very_end() -> None:
    kinds = [
        kind for one in OPERATIONS for kind in (one.body, one.query, *(header.kind for header in one.headers)) if kind
    ]
    patterns = {pattern for kind in (*kinds, *KINDS.values(), Settings) for pattern in patterns_in(kind)}
    assert len(patterns) > 5
    assert [pattern for pattern in patterns if not pattern.startswith("^") or not pattern.endswith(r"\Z")] == []


def test_the_description_of_the_api_has_patterns_as_json_schema_writes_them() -> None:
    text = msgspec.json.encode(document(OPERATIONS, needs_keys=False)).decode()
    assert "\\\\Z" not in text
    assert r"^[A-Za-z0-9][A-Za-z0-9._:-]*$" in text


def test_a_name_is_refused_where_it_is_declared() -> None:
    app = Penstock()
    with pytest.raises(Invalid, match="cannot be declared"):
        app.command("mail\n", ["true"])
    with pytest.raises(Invalid, match="cannot be declared"):
        app.schedule("nightly\n", app.command("mail", ["true"]), interval=60)


def test_a_name_is_refused_where_it_is_set() -> None:
    with pytest.raises(InvalidSetting, match="prefix"):
        load(None, {"PENSTOCK_BROKER_PREFIX": "mine\n"}, {})
    assert not is_name("default\n")


@pytest.mark.parametrize("name", ["a", ".hidden", "ä" * 127, "a b", "💧" * 63, "input-0", "con"])
def test_a_plain_name_can_name_a_file(name: str) -> None:
    check_file_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "ä" * 128, "x" * 256, "\ud800", *CONTROLS])
def test_what_no_file_can_be_called_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="cannot name a file"):
        check_file_name(name)


@pytest.mark.parametrize("text", [*CONTROLS, "\ud800", "x" * 9999, "plain"])
def test_a_reason_can_always_be_kept(text: str) -> None:
    reason = msgspec.convert(reason_of(f"invalid: {text}"), Reason)
    assert re.search(r"[\x00-\x1f]", reason) is None
    reason.encode()


def patterns_in(kind: Any) -> Iterator[str]:
    """The patterns of all text that a type can hold."""
    seen: set[type[Struct]] = set()
    waiting: list[Type] = [type_info(kind)]
    while waiting:
        match waiting.pop():
            case StrType(pattern=str() as pattern):
                yield pattern
            case Metadata(type=inner):
                waiting.append(inner)
            case UnionType(types=types):
                waiting += types
            case StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                waiting += [field.type for field in fields]
            case other:
                parts = (getattr(other, name, None) for name in ("item_type", "key_type", "value_type"))
                waiting += [part for part in parts if isinstance(part, Type)]
