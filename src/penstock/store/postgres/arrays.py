"""Columns of many values as one parameter each: PostgreSQL arrays, written in its binary format.

A column that is NULL throughout is written as an empty array: `unnest` of several fills it up. psycopg's own arrays
take a call of Python for every element; an ordinary job has twenty.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, ClassVar, TypeVar

from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from penstock.model.ids import JobId, to_bytes

_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_NULL = b"\xff\xff\xff\xff"
_UUID_LENGTH = _LENGTH.pack(16)
_UUID_LENGTH_HEX = _UUID_LENGTH.hex()
_BIGINT = struct.Struct("!iq")


class Array:
    """An array in PostgreSQL's binary format, and what it holds."""

    __slots__ = ("data",)
    oid: ClassVar[int]
    element: ClassVar[int]

    def __init__(self, size: int, body: bytes, *, nulls: bool) -> None:
        self.data = (
            _HEADER.pack(1, nulls, self.element, size, 1) + body
            if size
            else _HEADER.pack(0, 0, self.element, 0, 0)[:12]
        )


A = TypeVar("A", bound=Array)
T = TypeVar("T")


class Uuids(Array):
    oid, element = 2951, 2950


class Bigints(Array):
    oid, element = 1016, 20


class Texts(Array):
    oid, element = 1009, 25


class Byteas(Array):
    oid, element = 1001, 17


class Booleans(Array):
    oid, element = 1000, 16


def alike(values: Sequence[object]) -> bool:
    """Whether all values are equal; fast where they are one object, as in most columns of a batch."""
    return values.count(values[0]) == len(values)


def uuids(jobs: Sequence[JobId]) -> Uuids:
    # Decoded from hexadecimal in one call: id by id took four times as long.
    text = _UUID_LENGTH_HEX + _UUID_LENGTH_HEX.join(jobs) if jobs else ""
    return Uuids(len(jobs), bytes.fromhex(text.replace("-", "")), nulls=False)


def id_range(jobs: Sequence[JobId]) -> dict[str, Uuids | JobId]:
    """The ids, with the lowest and the highest of them: these bound the partitions that the statement opens."""
    return {"ids": uuids(jobs), "first": min(jobs), "last": max(jobs)}


def optional_uuids(jobs: Sequence[JobId | None]) -> Uuids:
    if not any(jobs):
        return Uuids(0, b"", nulls=False)
    parts = [_NULL if job is None else _UUID_LENGTH + to_bytes(job) for job in jobs]
    return Uuids(len(parts), b"".join(parts), nulls=True)


def bigints(values: Sequence[int | None]) -> Bigints:
    """Empty if all are None."""
    if not values or None in values or alike(values):
        return _column(Bigints, _bigint, values)
    return Bigints(
        len(values), struct.pack("!" + "iq" * len(values), *chain.from_iterable(zip(repeat(8), values))), nulls=False
    )


def booleans(values: Sequence[bool]) -> Booleans:
    return _column(Booleans, _boolean, values)


def texts(values: Sequence[str | None]) -> Texts:
    """Empty if all are None."""
    return _column(Texts, _text, values)


def byteas(values: Sequence[bytes | None]) -> Byteas:
    """Empty if all are None."""
    if values.count(None) == len(values):
        return Byteas(0, b"", nulls=False)
    parts = [_NULL if value is None else _LENGTH.pack(len(value)) + value for value in values]
    return Byteas(len(values), b"".join(parts), nulls=True)


def register(adapters: AdaptersMap) -> None:
    """Register the array types with a connection."""
    for array in (Uuids, Bigints, Texts, Byteas, Booleans):
        adapters.register_dumper(array, type(f"{array.__name__}Dumper", (_ArrayDumper,), {"oid": array.oid}))


def _column(kind: type[A], write: Callable[[T], bytes], values: Sequence[T]) -> A:
    """Encode one column. Values that repeat, as queues and types do, are encoded once."""
    if values and alike(values):
        values, body = (values, write(values[0]) * len(values)) if values[0] is not None else ((), b"")
        return kind(len(values), body, nulls=False)
    distinct = set(values)
    written = {value: write(value) for value in distinct}
    return kind(len(values), b"".join([written[value] for value in values]), nulls=None in distinct)


def _bigint(value: int | None) -> bytes:
    return _NULL if value is None else _BIGINT.pack(8, value)


def _boolean(value: bool) -> bytes:
    return b"\0\0\0\1\1" if value else b"\0\0\0\1\0"


def _text(value: str | None) -> bytes:
    return _written(None if value is None else value.encode())


def _written(value: bytes | None) -> bytes:
    return _NULL if value is None else _LENGTH.pack(len(value)) + value


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        data: bytes = obj.data
        return data
