"""Params as they are typed: a JSON object, a file of it, or `key=value` pairs."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec


def read_params(words: Sequence[str]) -> dict[str, object]:
    """The params of a submit. A word is `key=value`, a JSON object, `@file` or `-` (stdin) with one; later ones win."""
    params: dict[str, object] = {}
    for word in words:
        params |= dict([_pair(word)]) if _is_pair(word) else _object(word)
    return params


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


def _pair(text: str) -> tuple[str, object]:
    name, value = split_pair(text, "key=value; a value that is JSON is taken as such, any other as text")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.MsgspecError:
        return name, value
