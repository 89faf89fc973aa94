"""Strict JSON bodies: what two JSON readers could understand differently is refused."""

import json
import re
from collections import Counter
from itertools import accumulate
from typing import Any, NoReturn, TypeVar

import msgspec

from penstock.model.errors import Invalid, Malformed, TooLarge

T = TypeVar("T")

_NOT_MARKS = bytes(set(range(256)) - set(b'[]{}"\\'))
_ALL_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
_ROUNDS = 3
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_EXPLAINED_BYTES = 64 * 1024


def check_json(body: bytes, depth: int, values: int) -> None:
    """Check that the body is one JSON value that every reader understands alike; raises Malformed or TooLarge.

    Refused beyond bad syntax: NaN, numbers beyond a double or integers beyond 64 bits, lone surrogates, bytes that are
    not UTF-8, an object with the same key twice, and nesting deeper than `depth`. `values` bounds strings, lists and
    objects, so that the decoder, which blocks the event loop, runs for a bounded time. No Python code runs per value.
    """
    if len(body) > values:
        _refuse_many(body, values)
    try:
        value = msgspec.json.decode(body)
        if _has_duplicate_keys(body, value):
            _explain(body, "an object has the same key twice")
        if _long_number(body) and _LONG_INTEGER.search(_without_strings(body)):
            _explain(body, "an integer does not fit into 64 bits")
    except RecursionError:
        _refuse_depth(depth)
    except ValueError as error:
        raise Malformed(f"the body is not valid JSON: {error}") from None
    if _openings(body) > depth and _is_deeper(body, depth):
        _refuse_depth(depth)


def decode_json(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """The JSON as a struct; Invalid names the field that is missing, unknown or not acceptable."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise Invalid(str(error)) from None


def refuse_announced(length: str | None, limit: int, setting: str) -> None:
    """Raise TooLarge for a Content-Length above the limit, before a byte is read."""
    if length is not None and length.isdecimal() and int(length) > limit:
        raise too_large(limit, setting)


def too_large(limit: int, setting: str) -> TooLarge:
    return TooLarge(f"the body may have at most {limit:,} bytes ({setting})")


def _refuse_many(body: bytes, values: int) -> None:
    if body.count(b'"') // 2 + _openings(body) <= values:
        return
    # Some of these may stand inside strings.
    strings = _without_escapes(body).count(b'"') // 2
    if strings > values or strings + _openings(_without_strings(body)) > values:
        raise TooLarge(f"the body has more than {values:,} strings, lists and objects (limits.values)")


def _openings(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _has_duplicate_keys(body: bytes, value: Any) -> bool:
    """True if decoding dropped a duplicate key: then the value encodes to fewer colons than the body has."""
    encoded = msgspec.json.encode(value)
    return encoded != body and encoded.count(b":") != _colons(body)


def _colons(body: bytes) -> int:
    """The colons of valid JSON, also those that are written as an escape."""
    plain = body.count(b":")
    if b"\\u003" not in body:
        return plain
    escapes = body.replace(b"\\\\", b"").lower()
    return plain + escapes.count(b"\\u003a")


def _without_escapes(body: bytes) -> bytes:
    """Valid JSON without escaped quotes and backslashes, so that every quote is one that opens or closes a string."""
    if b"\\" not in body:
        return body
    return body.replace(b"\\\\", b"").replace(b'\\"', b"")


def _without_strings(body: bytes) -> bytes:
    """Valid JSON with nothing inside its strings."""
    return b'""'.join(_without_escapes(body).split(b'"')[::2])


def _is_deeper(body: bytes, depth: int) -> bool:
    """True when valid JSON nests deeper than `depth`."""
    brackets = _brackets(body)
    if _is_shallow(brackets, min(depth // 2, _ROUNDS)):
        return False
    steps = brackets.translate(_STEPS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > depth


def _is_shallow(brackets: bytes, rounds: int) -> bool:
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
    return _without_strings(body).translate(None, _NOT_MARKS).replace(b'""', b"")


def _refuse_depth(depth: int) -> NoReturn:
    raise Malformed(f"the body nests deeper than {depth} levels (limits.depth)") from None


def _explain(body: bytes, fault: str) -> NoReturn:
    """Raise ValueError for a body that has this fault; of a small one it names the place, which is slow."""
    if len(body) <= _EXPLAINED_BYTES:
        _STRICT.decode(body.decode())
    raise ValueError(fault)


def _check_unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        (doubled, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {doubled!r} appears more than once in one object")


def _check_integer(digits: str) -> None:
    if not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"integer {digits[:24]} does not fit into 64 bits")


_STRICT = json.JSONDecoder(object_pairs_hook=_check_unique, parse_int=_check_integer)


def _long_number(body: bytes) -> bool:
    return _LONG_NUMBER in body.translate(_ALL_ZEROS)


def _above(limit: int) -> str:
    """A pattern of the whole numbers above the limit, for those that are written without leading zeros."""
    digits = str(limit)
    longer = rf"[0-9]{{{len(digits) + 1},}}"
    larger = [
        rf"{digits[:place]}[{int(digit) + 1}-9][0-9]{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    return "|".join((longer, *larger))


# Not a fraction and not an exponent: those are checked, or cut short, by the decoder.
_LONG_INTEGER = re.compile(rf"(?<![0-9.eE+-])(?:(?:{_above(2**63 - 1)})|-(?:{_above(2**63)}))(?![0-9.eE])".encode())

_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind)
    return _DECODERS[kind]
