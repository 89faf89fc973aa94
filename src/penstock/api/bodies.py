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
_NOT_MARKS = bytes(set(range(256)) - set(b'[]{}"\\'))
_ALL_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
_ROUNDS = 3
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def checked_json(body: bytes, depth: int) -> None:
    """Return if the body is one JSON value that everyone reads alike; Malformed if not.

    Refused beyond bad syntax: NaN, numbers beyond a double or integers beyond 64 bits, lone surrogates, bytes that are
    not UTF-8, an object with the same key twice, and nesting deeper than `depth`.
    """
    try:
        value = msgspec.json.decode(body)
        if not _plain(body, value):
            _strict_for(body).decode(body.decode())
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


def refuse_announced(length: str | None, limit: int, setting: str) -> None:
    """Raise TooLarge for a Content-Length above the limit, before a byte is read."""
    if length is not None and length.isdecimal() and int(length) > limit:
        raise too_large(limit, setting)


def too_large(limit: int, setting: str) -> TooLarge:
    return TooLarge(f"the body may have at most {limit:,} bytes ({setting})")


def _plain(body: bytes, value: Any) -> bool:
    """Whether the body is what msgspec, and so our SDK, writes for its value: then there is nothing doubled in it.

    Many times as fast as reading it a second time.
    """
    return not _long_number(body) and msgspec.json.encode(value) == body


def _deeper(body: bytes, depth: int) -> bool:
    """True when valid JSON nests deeper than `depth`. Valid only: an unclosed string would make this quadratic."""
    if body.count(b"[") + body.count(b"{") <= depth:
        return False
    brackets = _brackets(body)
    if _shallow(brackets, min(depth // 2, _ROUNDS)):
        return False
    steps = brackets.translate(_STEPS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > depth


def _shallow(brackets: bytes, rounds: int) -> bool:
    """True when nothing is left after so many rounds of taking out pairs; each takes out one or two levels of all."""
    for _ in range(rounds):
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return not brackets


def _brackets(body: bytes) -> bytes:
    """The brackets of valid JSON that do not stand inside strings."""
    marks = body.translate(None, _NOT_MARKS).replace(b'""', b"")
    # A bracket inside a string has an odd number of quotes before it; removing pairs of quotes leaves it one.
    if b'"' not in marks and b"\\" not in marks:
        return marks
    return _STRING.sub(b"", body).translate(None, _NOT_MARKS)


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
_STRICT_INTEGERS = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_bounded)


def _strict_for(body: bytes) -> json.JSONDecoder:
    """Looking at each integer is slow, so it is done only where one may be too long."""
    return _STRICT_INTEGERS if _long_number(body) else _STRICT


def _long_number(body: bytes) -> bool:
    return _LONG_NUMBER in body.translate(_ALL_ZEROS)


_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind)
    return _DECODERS[kind]
