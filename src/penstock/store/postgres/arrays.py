"""Columns of many values as one parameter each: PostgreSQL arrays, written in its binary format.

A column that is NULL throughout is written as an empty array: `unnest` of several fills it up. psycopg's own arrays
take a call of Python for every element; an ordinary job has twenty.
"""

import struct
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, ClassVar

from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from penstock.model.ids import JobId, to_bytes

_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_NULL = b"\xff\xff\xff\xff"
_UUID_LENGTH = _LENGTH.pack(16)
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


def uuids(jobs: Sequence[JobId]) -> Uuids:
    body = _UUID_LENGTH + _UUID_LENGTH.join(map(to_bytes, jobs)) if jobs else b""
    return Uuids(len(jobs), body, nulls=False)


def sought(jobs: Sequence[JobId]) -> dict[str, Uuids | JobId]:
    """The ids, and the first and last of them by time, between which are the partitions to look into."""
    return {"ids": uuids(jobs), "first": min(jobs), "last": max(jobs)}


def optional_uuids(jobs: Sequence[JobId | None]) -> Uuids:
    if not any(jobs):
        return Uuids(0, b"", nulls=False)
    parts = [_NULL if job is None else _UUID_LENGTH + to_bytes(job) for job in jobs]
    return Uuids(len(parts), b"".join(parts), nulls=True)


def bigints(values: Sequence[int | None]) -> Bigints:
    """Empty if all are None."""
    nulls = values.count(None)
    if nulls == len(values):
        return Bigints(0, b"", nulls=False)
    if nulls:
        parts = [_NULL if value is None else _BIGINT.pack(8, value) for value in values]
        return Bigints(len(parts), b"".join(parts), nulls=True)
    body = struct.pack("!" + "iq" * len(values), *chain.from_iterable(zip(repeat(8), values)))
    return Bigints(len(values), body, nulls=False)


def booleans(values: Sequence[bool]) -> Booleans:
    body = b"".join(b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in values)
    return Booleans(len(values), body, nulls=False)


def texts(values: Sequence[str | None]) -> Texts:
    """Empty if all are None. Values that repeat, as queues and types do, are encoded once."""
    distinct = set(values)
    if distinct == {None}:
        return Texts(0, b"", nulls=False)
    written = {value: _written(None if value is None else value.encode()) for value in distinct}
    return Texts(len(values), b"".join([written[value] for value in values]), nulls=None in distinct)


def byteas(values: Sequence[bytes | None]) -> Byteas:
    """Empty if all are None."""
    if values.count(None) == len(values):
        return Byteas(0, b"", nulls=False)
    return Byteas(len(values), b"".join(map(_written, values)), nulls=True)


def register(adapters: AdaptersMap) -> None:
    """Teach a connection to send these."""
    for array in (Uuids, Bigints, Texts, Byteas, Booleans):
        adapters.register_dumper(array, type(f"{array.__name__}Dumper", (_ArrayDumper,), {"oid": array.oid}))


def _written(value: bytes | None) -> bytes:
    return _NULL if value is None else _LENGTH.pack(len(value)) + value


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        data: bytes = obj.data
        return data
