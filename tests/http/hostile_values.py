"""Values at and beyond every limit of every field, as a hostile or careless client may send them.

Each field has plain values and hostile ones. `each_edge` gives requests in which one field holds one edge, all of them;
`requests` gives any, with at most two fields that may not be fine.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

Strategy = st.SearchStrategy[Any]
Json = dict[str, Any]

TEXTS = (
    *("", " ", "-", "_", ":", "$", "^", '"', "{}", "null", "NaN", "'; --", "%00", "\\u0000", "infinity"),
    *("\0", "a\0b", "\n", "mail\n", "a\nb", "\r\n", "\t", "\x1b[31m", "\x7f", "\x85", "\x9b", "\u2028"),
    *("\ufeff", "\ufffe", "\ud800", "\udc00x", "💧", "e\u0301"),
    *(".", "..", "../x", "a/b", "a\\b", "5:mail/mail", "1:a/b", "input-0", "preview", "every-x"),
    *("x" * 128, "x" * 129, "x" * 255, "x" * 256, "x" * 600, "ä" * 64, "ä" * 127, "ä" * 128, "日" * 86),
)
NUMBERS = (
    *(0, -0.0, 1, -1, 9, 10, 1000, 1001, 0.5, 0.001, 1e-9, 5e-324, 1e15, 1e308, 31_536_000, 31_536_001),
    *(315_360_000, 315_360_001, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30),
    *(float("inf"), float("-inf"), float("nan"), True, "1", None),
)
INSTANTS = (
    *("1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "2999-12-31T23:59:59.999Z", "2999-12-31T23:59:59.9999Z"),
    *("3000-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59+14:00", "0001-01-01T00:00:00+14:00"),
    *("20000-01-01T00:00:00Z", "294276-12-31T23:59:59Z", "infinity", "-infinity", "now", "2030-01-01"),
    *("2030-01-01T00:00:00", "2030-06-30T23:59:60Z", "2030-02-30T00:00:00Z", "2030-01-01T00:00:00.123456789Z"),
    *("", 0, 1e300, None),
)
ZONED = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


class Field(Struct):
    """What is fine, what lies at an edge, and what may be anything."""

    plain: Strategy
    edges: tuple[Any, ...]
    hostile: Strategy

    @classmethod
    def of(cls, plain: Strategy, edges: Iterable[Any], more: Strategy) -> "Field":
        known = tuple(edges)
        return cls(plain, known, st.sampled_from(known) | more)


Fields = Mapping[str, Field]


def each_edge(base: Json, fields: Fields) -> Iterator[Json]:
    """The base with one field at one edge; every field, every edge."""
    return (base | {name: edge} for name, field in fields.items() for edge in field.edges)


@st.composite
def requests(draw: st.DrawFn, base: Json, fields: Fields) -> Json:
    """The base with some of the fields, of which at most two hold what may not be fine."""
    wanted = draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=4, unique=True))
    spoilt = draw(st.lists(st.sampled_from(wanted), max_size=2, unique=True))
    drawn = {name: draw(fields[name].hostile if name in spoilt else fields[name].plain) for name in wanted}
    return base | drawn


def _instants(first: int, last: int) -> Strategy:
    naive = st.datetimes(datetime(first, 1, 1), datetime(last, 12, 31))  # noqa: DTZ001 - the zone comes with ZONED
    return st.builds(lambda at, zone: at.replace(tzinfo=zone).isoformat(), naive, ZONED)


texts = st.sampled_from(TEXTS) | st.text(max_size=9)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,9}", fullmatch=True)
numbers = st.sampled_from(NUMBERS) | st.integers() | st.floats()
objects = st.dictionaries(texts, st.recursive(numbers | texts, lambda inner: st.lists(inner, max_size=3), max_leaves=4))
kinds = st.sampled_from(["none", "fixed", "linear", "exponential"])


def _deep(levels: int) -> Json:
    found: Json = json.loads('{"a":' * levels + "1" + "}" * levels)
    return found


NAME = Field.of(names, TEXTS, st.text(max_size=9))
TEXT = Field.of(names, TEXTS, st.text(max_size=9))
NUMBER = Field.of(st.integers(1, 9), NUMBERS, st.integers() | st.floats())
INSTANT = Field.of(_instants(2100, 2200), INSTANTS, _instants(1, 9999))
WORDS = Field.of(st.lists(names, max_size=2), [*([text] for text in TEXTS), ["a"] * 33], st.lists(texts, max_size=3))
VALUE = Field.of(st.integers(0, 9), [*TEXTS, *NUMBERS, *map(_deep, (60, 61, 62, 63, 90))], objects)
RETRY = Field.of(
    kinds,
    [
        *({name: edge} for name in ("max_attempts", "delay_seconds", "factor", "cap_seconds") for edge in NUMBERS),
        *({"never": [edge]} for edge in TEXTS),
        *({"kind": edge} for edge in TEXTS),
        *TEXTS,
    ],
    st.dictionaries(st.sampled_from(["max_attempts", "delay_seconds", "factor", "cap_seconds"]), numbers),
)
TERMS: Fields = {
    "type": NAME,
    "params": Field.of(
        st.dictionaries(names, st.integers(0, 9), max_size=2),
        [*({"a": edge} for edge in VALUE.edges), *({edge: 1} for edge in TEXTS)],
        objects,
    ),
    "queue": NAME,
    "priority": NUMBER,
    "retry_policy": RETRY,
    "timeout_seconds": NUMBER,
    "tags": WORDS,
}
"""What a job and a schedule may both say."""

SQL_JOB: Fields = {
    **TERMS,
    "delay_seconds": NUMBER,
    "scheduled_at": INSTANT,
    "expires_at": INSTANT,
    "idempotency_key": NAME,
}
JOB: Fields = {**SQL_JOB, "interval": NUMBER, "inputs": WORDS}
"""`inputs` are the names alone: the sender of the request adds an upload to each."""

SCHEDULE: Fields = {
    "name": NAME,
    "queue": NAME,
    "tags": WORDS,
    "interval": NUMBER,
    "cron": Field.of(st.sampled_from(["@hourly", "0 0 29 2 *"]), TEXTS, st.text(max_size=9)),
    "timezone": Field.of(st.sampled_from(["UTC", "Europe/Berlin", "Pacific/Kiritimati"]), TEXTS, st.text(max_size=9)),
    "start_at": INSTANT,
    "end_at": INSTANT,
    "jitter_seconds": NUMBER,
    "misfire_cap": NUMBER,
    "misfire_grace_seconds": NUMBER,
}
WORKER: Fields = {
    "id": NAME,
    "host": TEXT,
    "pid": NUMBER,
    "version": TEXT,
    "types": WORDS,
    "queues": WORDS,
    "except_queues": WORDS,
    "capacity": NUMBER,
    "running": NUMBER,
    "started_at": INSTANT,
    "seen_at": INSTANT,
}
TYPE: Fields = {"name": NAME, "queue": NAME, "priority": NUMBER, "timeout_seconds": NUMBER, "description": TEXT}
ERROR: Fields = {"code": TEXT, "message": TEXT, "attempt": NUMBER}
LINE: Fields = {"at": INSTANT, "stream": TEXT, "text": TEXT, "attempt": NUMBER}
PROGRESS: Fields = {"fraction": NUMBER, "message": TEXT}


def body_of(value: object) -> bytes:
    """As JSON, as Python would write it: with NaN, and with halves of characters as they come."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
