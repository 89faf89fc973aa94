"""Instants: in UTC and within a range, however they come in, and readable whatever a row holds."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from msgspec import Struct
from msgspec.inspect import DateTimeType, Field, Metadata, StructType, Type, UnionType, type_info

from penstock.api.app import OPERATIONS
from penstock.client.options import body_of
from penstock.client.schedule_calls import backfill
from penstock.model.clock import EARLIEST, LATEST, from_millis, to_millis, utc
from penstock.model.errors import Invalid
from penstock.model.wire.jobs import SubmitRequest

WEST, EAST = timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))
OUT_OF_RANGE = (
    datetime.max.replace(tzinfo=WEST),
    datetime.max.replace(tzinfo=UTC),
    LATEST + timedelta(microseconds=1),
    EARLIEST - timedelta(microseconds=1),
    datetime.min.replace(tzinfo=EAST),
)


@pytest.mark.parametrize("at", OUT_OF_RANGE)
def test_an_instant_out_of_range_is_refused_by_name(at: datetime) -> None:
    with pytest.raises(Invalid, match=r"expires_at: .* from 1970 to 2999"):
        utc("expires_at", at)


def test_an_instant_without_a_time_zone_is_refused() -> None:
    with pytest.raises(Invalid, match=r"expires_at: .* no time zone"):
        utc("expires_at", datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("at", [EARLIEST, LATEST, datetime(2030, 1, 1, 12, tzinfo=EAST)])
def test_an_instant_in_range_is_the_same_one_in_utc(at: datetime) -> None:
    assert (utc("at", at), utc("at", at).tzinfo) == (at, UTC)


@pytest.mark.parametrize("millis", [-(2**63), -1, to_millis(LATEST) + 1, 10**15, 2**63 - 1])
def test_whatever_a_row_holds_can_be_read_and_reckoned_with(millis: int) -> None:
    assert from_millis(millis) == (EARLIEST if millis < 0 else LATEST)
    assert from_millis(millis) + timedelta(days=36_500) > EARLIEST


@pytest.mark.parametrize("millis", [0, 1, to_millis(LATEST)])
def test_an_instant_that_was_kept_is_read_as_it_was(millis: int) -> None:
    assert to_millis(from_millis(millis)) == millis


def test_a_request_holds_its_instants_in_utc() -> None:
    body = b'{"type": "mail", "scheduled_at": "2030-01-01T14:00:00+14:00"}'
    request = msgspec.json.decode(body, type=SubmitRequest)
    assert msgspec.json.encode(request.scheduled_at) == b'"2030-01-01T00:00:00Z"'


def test_every_instant_that_a_request_can_hold_is_checked() -> None:
    """Structs are made without looking at types: only `__post_init__` can refuse."""
    held = {(kind, field.name) for one in OPERATIONS if one.body for kind, field in instants_in(one.body)}
    assert {kind.__name__ for kind, _ in held} >= {"SubmitRequest", "ScheduleBody", "Decision", "LogLine", "Worker"}
    for kind, name in held:
        with pytest.raises(Invalid, match="out of range"):
            kind(**dict.fromkeys(kind.__struct_fields__) | {name: OUT_OF_RANGE[0]})


@pytest.mark.parametrize("name", ["scheduled_at", "expires_at"])
def test_the_sdk_refuses_an_instant_out_of_range_before_anything_is_sent(name: str) -> None:
    with pytest.raises(Invalid, match=name):
        body_of({"type": "mail", name: OUT_OF_RANGE[0]}, {})  # type: ignore[misc]


@pytest.mark.parametrize("span", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["delay", "interval", "timeout"])
def test_the_sdk_refuses_a_duration_that_is_no_number(name: str, span: float) -> None:
    with pytest.raises(Invalid, match="not a duration"):
        body_of({"type": "mail", name: span}, {})  # type: ignore[misc]


def test_the_sdk_names_an_instant_as_the_wire_does() -> None:
    with pytest.raises(Invalid, match=r"^from: "):
        backfill("nightly", OUT_OF_RANGE[-1], LATEST)


def instants_in(kind: type[Struct]) -> Iterator[tuple[type[Struct], Field]]:
    """The fields of a struct, and of those that it holds, that are instants."""
    seen: set[type] = set()
    waiting: list[Type] = [type_info(kind)]
    while waiting:
        match waiting.pop():
            case StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                yield from ((cls, field) for field in fields if DateTimeType in map(type, parts_of(field.type)))
                waiting += [part for field in fields for part in parts_of(field.type)]


def parts_of(known: Type) -> Iterator[Type]:
    match known:
        case Metadata(type=inner):
            yield from parts_of(inner)
        case UnionType(types=types):
            for one in types:
                yield from parts_of(one)
        case _:
            yield known
            if isinstance(item := getattr(known, "item_type", None), Type):
                yield from parts_of(item)
