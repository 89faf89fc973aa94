"""The result of a handler: a value with a form in JSON, as its return annotation says, in so many bytes at most.

Checked in the executor, before anything is sent: only there the wrong part of the value can be named.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, get_type_hints

import msgspec
from msgspec import Raw

_TEXTS = (str, bytes, bytearray, Raw)
_encode = msgspec.json.Encoder().encode


class ResultMisfit(ValueError):
    """Why a value cannot be the result of its handler, and where in the value that lies."""


class ReturnType:
    """The return annotation of a handler. A type that msgspec does not know accepts any value."""

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation if _decodable(annotation) else Any
        self._decoder = msgspec.json.Decoder(Raw if self._annotation is Any else annotation)
        self._accepts_null = self._accepts(b"null")

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """By the function's return annotation; without one it may be anything."""
        return cls(get_type_hints(function, include_extras=True).get("return", Any))

    def read(self, plain: object) -> Any:
        """A result as declared, from its plain JSON value; ValidationError if it is not."""
        return msgspec.convert(plain, self._annotation, str_keys=True)

    def write(self, value: object, most_bytes: int) -> bytes:
        """A value as JSON. ResultMisfit for one that is too large, not finite or not as declared.

        What the encoder raises for a value without a form in JSON is raised as it is. One that is far too large is
        refused before it is encoded.
        """
        if value is None and self._accepts_null:
            return b"null"
        if least_bytes(value, most_bytes) > most_bytes:
            raise _too_large(most_bytes)
        encoded = _encode(value)
        if len(encoded) > most_bytes:
            raise _too_large(most_bytes)
        # The encoder writes NaN as null.
        if value is not None and b"null" in encoded:
            _require_finite(value)
        self._check(encoded)
        return encoded

    def _accepts(self, encoded: bytes) -> bool:
        try:
            self._check(encoded)
        except ResultMisfit:
            return False
        return True

    def _check(self, encoded: bytes) -> None:
        """Check the encoded text too: a `msgspec.Raw` inside is copied unchecked."""
        encoded.decode()
        try:
            self._decoder.decode(encoded)
        except msgspec.ValidationError as error:
            said = str(error).replace("`$", "`result")
            raise ResultMisfit(f"the result is not what the handler declares: {said}") from None
        except TypeError:
            return  # a class that no value can be compared with, such as most protocols


def check_written(raw: bytes, most_bytes: int) -> None:
    """Check what a program wrote as its result: raises ResultMisfit, or the decoder's error if it is not JSON."""
    if len(raw) > most_bytes:
        raise _too_large(most_bytes)
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError:
        _explain_number(raw)
        raise


def _explain_number(raw: bytes) -> None:
    """Name the place of a NaN, which many programs write and JSON does not have; else the error as it is."""
    try:
        found = first_not_finite(json.loads(raw))
    except ValueError:
        return
    if found is not None:
        raise _not_finite(*found)


def _decodable(annotation: Any) -> bool:
    try:
        msgspec.json.Decoder(annotation)
    except TypeError:
        return False
    return True


def least_bytes(value: object, enough: int) -> int:
    """A lower bound of a value's length in JSON; counted on only until it is above `enough`."""
    total, left = 0, [value]
    while left and total <= enough:
        one = left.pop()
        if isinstance(one, _TEXTS):
            total += len(one)
        elif one is None or isinstance(one, (int, float)):
            continue  # the list or dict that holds it has counted a byte for it
        elif isinstance(one, (list, tuple, set, frozenset)):
            total += 2 * len(one)
            if total <= enough:
                left += one
        elif isinstance(one, dict):
            total += 4 * len(one)
            if total <= enough:
                left += one
                left += one.values()
        else:
            left += [getattr(one, name, None) for name in _fields(type(one))]
    return total


def _fields(kind: type) -> Iterable[str]:
    """The fields of a Struct or a dataclass; of others none."""
    fields: Iterable[str] = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
    return fields


def first_not_finite(value: object) -> tuple[str, float] | None:
    """The first NaN or infinity in a plain value, and its place; None if there is none."""
    left: list[tuple[str, object]] = [("result", value)]
    while left:
        place, one = left.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return place, one
        left += reversed(list(_parts(place, one)))
    return None


def _parts(place: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, part in value.items():
            named = isinstance(key, str) and key.isidentifier()
            yield (f"{place}.{key}" if named else f"{place}[{key!r}]"), part
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield f"{place}[{index}]", part


def _require_finite(value: object) -> None:
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=lambda _raw: None)
    found = first_not_finite(plain)
    if found is not None:
        raise _not_finite(*found)


def _not_finite(place: str, number: float) -> ResultMisfit:
    name = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    return ResultMisfit(f"{place} is {name}, which JSON has no number for: give null there, or a text")


def _too_large(most_bytes: int) -> ResultMisfit:
    return ResultMisfit(f"the result has more than {most_bytes:,} bytes (limits.body_bytes): give it as an output file")
