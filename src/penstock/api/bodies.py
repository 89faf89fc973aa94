"""Reading JSON strictly: what one reader would take differently from another is refused at the door."""

import json
import re
from collections import Counter
from itertools import accumulate
from typing import Any, NoReturn, TypeVar

import msgspec

from penstock.model.errors import Invalid, Malformed, TooLarge

T = TypeVar("T")

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def checked_json(body: bytes, depth: int) -> None:
    """Return if the body is one JSON value that everyone reads alike; Malformed if not.

    Refused beyond bad syntax: NaN, numbers beyond a double or integers beyond 64 bits, lone surrogates, bytes that are
    not UTF-8, an object with the same key twice, and nesting deeper than `depth`.
    """
    try:
        msgspec.json.decode(body)
        (_STRICT_INTEGERS if _LONG_NUMBER.search(body) else _STRICT).decode(body.decode())
    except RecursionError:
        _refuse_depth(depth)
    except ValueError as fault:
        raise Malformed(f"the body is not valid JSON: {fault}") from None
    if _deeper(body, depth):
        _refuse_depth(depth)


def decoded(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """The JSON as a struct; Invalid names the field that is missing, unknown or not acceptable."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as fault:
        raise Invalid(str(fault)) from None


def refuse_length(length: str | None, limit: int, setting: str) -> None:
    """Raise TooLarge for an announced or counted length above the limit."""
    if length is not None and length.isdecimal() and int(length) > limit:
        raise TooLarge(f"the body may have at most {limit:,} bytes ({setting})")


def _deeper(body: bytes, depth: int) -> bool:
    """True when valid JSON nests deeper than `depth`. Valid only: an unclosed string would make this quadratic."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    steps = _STRING.sub(b"", body).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > depth


def _refuse_depth(depth: int) -> NoReturn:
    raise Malformed(f"the body nests deeper than {depth} levels (limits.depth)") from None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    """Check an object's keys and forget it: the values are decoded elsewhere."""
    if len(dict(pairs)) != len(pairs):
        (doubled, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {doubled!r} appears more than once in one object")


def _bounded(digits: str) -> None:
    if not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"integer {digits[:24]} does not fit into 64 bits")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique)
# Calls back for every integer, so it is kept for bodies in which one may be too long.
_STRICT_INTEGERS = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_bounded)


_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind)
    return _DECODERS[kind]
