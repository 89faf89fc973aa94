"""Params as they are typed: a JSON object, a file of it, or `key=value` pairs."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from penstock.model.errors import Refused

if TYPE_CHECKING:
    from penstock.client import Client


Schema = Mapping[str, Any]
JSON_TYPES: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}


def read_params(words: Sequence[str], ask_schema: Callable[[], Schema] = dict) -> dict[str, object]:
    """The params of a submit. A word is `key=value`, a JSON object, `@file` or `-` (stdin) with one; later ones win.

    The value of a pair is JSON if it can be and the param's schema has a place for that, else text. The schema is asked
    for if a pair needs it; an empty one has a place for everything.
    """
    schema_once = cache(ask_schema)
    params: dict[str, object] = {}
    for word in words:
        params |= dict([_pair(word, schema_once)]) if _is_pair(word) else _object(word)
    return params


def params_schema(client: "Client", type_name: str) -> Schema:
    """The schema of a type's params, under any of its names; empty if the server does not know it, or does not tell."""
    try:
        types = client.types()
    except Refused:
        # A key that may submit need not be allowed to read types. The submit itself reports wrong params.
        return {}
    own = {one.name: one for one in types}
    known = own.get(type_name) or next((one for one in types if type_name in one.aliases), None)
    known = own.get(known.run_as, known) if known is not None and known.run_as else known
    return (known.params_schema or {}) if known is not None else {}


def split_pair(text: str, meaning: str) -> tuple[str, str]:
    """The two sides of `name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r}: write {meaning}")
    return name, value


def _is_pair(word: str) -> bool:
    return "=" in word and not word.lstrip().startswith(("{", "@"))


def _object(text: str) -> dict[str, object]:
    content = _content(text)
    try:
        return msgspec.json.decode(content, type=dict[str, object])
    except msgspec.MsgspecError as error:
        wrong = f"params are not a JSON object ({error}); write key=value, '{{\"key\": 1}}', @file or -"
        raise click.UsageError(wrong) from None


def _content(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read()
    return Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()


def _pair(text: str, ask_schema: Callable[[], Schema]) -> tuple[str, object]:
    name, typed = split_pair(text, "key=value; a value that is JSON is taken as such, any other as text")
    try:
        value = msgspec.json.decode(typed)
    except msgspec.MsgspecError:
        return name, typed
    if isinstance(value, str):
        return name, value
    schema = ask_schema()
    wanted = schema.get("properties", {}).get(name, {})
    return name, typed if _has_place(wanted, typed, schema) and not _has_place(wanted, value, schema) else value


def _has_place(wanted: Schema, value: object, schema: Schema) -> bool:
    """Whether a value of this kind may stand where the schema wants something; what it does not say, it allows."""
    if "$ref" in wanted:
        return _has_place(schema.get("$defs", {}).get(wanted["$ref"].rpartition("/")[2], {}), value, schema)
    for several in ("anyOf", "oneOf"):
        if several in wanted:
            return any(_has_place(one, value, schema) for one in wanted[several])
    if "enum" in wanted:
        return value in wanted["enum"]
    declared = wanted.get("type")
    allowed = [declared] if isinstance(declared, str) else declared
    return allowed is None or any(name in allowed for name in JSON_TYPES.get(type(value), ("string",)))
