"""What people read and type: tables, times, spans, params, log lines, figures."""

import json
import logging
import os
import re
import sys
from collections import Counter
from contextvars import copy_context
from datetime import UTC, datetime, timedelta

import click
import pytest

from penstock.cli.format import ago, instant, lasted, lines, span
from penstock.cli.job_format import size
from penstock.cli.job_params import read_params
from penstock.cli.process import JsonFormatter, ReadableFormatter, short_ids
from penstock.lab.bench.app import JobStart, lateness_ms, rate
from penstock.lab.bench.command import shown
from penstock.lab.bench.rig import Amounts, Figure
from penstock.model.request_ids import name_request

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


class StoppedClock:
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, span: timedelta) -> None: ...


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("0.5", 0.5), ("250ms", 0.25), ("90s", 90), ("1h30m", 5400), ("2d", 172_800)]
)
def test_a_span_is_seconds_or_has_units(text: str, seconds: float) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1y", "h", "1h 30", "ms5", "3651d", "9" * 400])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        span(text)


def test_an_instant_keeps_its_zone() -> None:
    assert instant("2026-11-15T14:00:00+02:00") == NOW


@pytest.mark.parametrize(
    "text", ["noon", "9999-12-31T23:59:59-12:00", "3000-01-01T00:00Z", "0001-01-01T00:00:00+14:00"]
)
def test_what_is_no_instant_that_could_be_kept_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        instant(text)


@pytest.mark.parametrize(
    ("before", "words"),
    [(0, "now"), (5, "5s ago"), (180, "3m ago"), (7200, "2h ago"), (200_000, "2d ago"), (-90, "in 2m")],
)
def test_times_are_told_by_their_distance(before: float, words: str) -> None:
    assert ago(NOW - timedelta(seconds=before), StoppedClock()) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0042, "4 ms"), (1.254, "1.25 s"), (42, "42 s"), (125, "2m 5s"), (7260, "2h 1m")]
)
def test_durations_are_as_precise_as_they_are_worth(seconds: float, words: str) -> None:
    assert lasted(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(("count", "words"), [(812, "812 B"), (4_400_000, "4.2 MiB"), (1 << 50, "1024.0 TiB")])
def test_sizes_have_units(count: int, words: str) -> None:
    assert size(count) == words


def test_columns_are_aligned_whatever_their_colours() -> None:
    coloured = click.style("ab", fg="red")
    table = [click.unstyle(line) for line in lines(("NAME", "N"), [(coloured, "1"), ("abcdef", "100")], right=("N",))]
    assert table == ["NAME      N", "ab        1", "abcdef  100"]


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
PROPERTIES = {
    "text": TEXT,
    "number": NUMBER,
    "optional": {"anyOf": [TEXT, {"type": "null"}]},
    "either": {"anyOf": [TEXT, {"type": "integer"}]},
    "listed": {"type": ["string", "boolean"]},
    "named": {"$ref": "#/$defs/Zip"},
    "chosen": {"enum": ["1", "2"]},
    "anything": {},
    "list": {"type": "array"},
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=5", "5"),
        ("text=true", "true"),
        ("text=null", "null"),
        ("text=[1]", "[1]"),
        ('text="5"', "5"),
        ("text=five", "five"),
        ("number=5", 5),
        ("number=2.5", 2.5),
        ("number=true", True),
        ("optional=5", "5"),
        ("optional=null", None),
        ("either=5", 5),
        ("either=2.5", "2.5"),
        ("listed=1", "1"),
        ("listed=true", True),
        ("named=12345", "12345"),
        ("chosen=2", "2"),
        ("anything=5", 5),
        ("unknown=5", 5),
        ("list=[1]", [1]),
        ("list=5", 5),
    ],
)
def test_a_value_is_text_where_the_type_wants_text(word: str, value: object) -> None:
    schema = {"properties": PROPERTIES, "$defs": {"Zip": TEXT}}
    (read,) = read_params([word], lambda: schema).values()
    assert (read, type(read)) == (value, type(value))


def test_a_schema_is_asked_for_once_and_only_if_a_value_needs_it() -> None:
    asked = Counter[str]()

    def ask() -> dict[str, object]:
        asked["schema"] += 1
        return {}

    read_params(["a=x", 'b="5"', '{"c": 5}'], ask)
    assert asked["schema"] == 0
    read_params(["a=1", "b=2"], ask)
    assert asked["schema"] == 1


def test_params_are_an_object_or_pairs_and_later_words_win() -> None:
    words = ('{"a": 1, "b": 1}', "b=2", "c=text", 'd={"e": null}', 'f="2"', "g=a=b")
    expected = {"a": 1, "b": 2, "c": "text", "d": {"e": None}, "f": "2", "g": "a=b"}
    assert read_params(words) == expected


def test_job_ids_are_short_in_the_log() -> None:
    assert short_ids("job 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55 ended") == "job …2f3b9c55 ended"


def test_a_log_line_has_time_part_and_message() -> None:
    record = logging.LogRecord("penstock.worker", logging.WARNING, "", 0, "lease lost", (), None)
    line = ReadableFormatter(colours=False).format(record)
    logged_at = datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").astimezone()
    assert abs(logged_at.timestamp() - record.created) <= 1
    assert line[19:] == " worker    warning: lease lost"


def test_a_line_about_a_request_has_its_id() -> None:
    record = logging.LogRecord("penstock.api", logging.INFO, "", 0, "asked", (), None)

    def answer() -> tuple[str, str]:
        name_request([(b"x-request-id", b"web-7")])
        return ReadableFormatter(colours=False).format(record), JsonFormatter().format(record)

    text, line = copy_context().run(answer)
    assert text.endswith("asked  request=web-7")
    assert json.loads(line)["request"] == "web-7"
    assert "request" not in json.loads(JsonFormatter().format(record))


def test_a_line_as_json_has_a_date_whole_ids_and_no_key() -> None:
    token = f"pk_abcdefgh_{'x' * 43}"
    job = "0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55"
    try:
        raise ValueError(token)
    except ValueError:
        trouble = sys.exc_info()
    record = logging.LogRecord("penstock.engine", logging.ERROR, "", 0, "job %s: %s\n2", (job, token), trouble)
    line = JsonFormatter().format(record)
    told = json.loads(line)
    assert ("\n" in line, token in line) == (False, False)
    assert (told["level"], told["part"], told["jobs"], told["pid"]) == ("error", "engine", [job], os.getpid())
    assert told["message"].startswith(f"job {job}: ")
    assert told["error"].startswith("Traceback")
    assert datetime.fromisoformat(told["at"]).utcoffset() == timedelta(0)


@pytest.mark.parametrize("sent", [b"", b"two words", b"x" * 129, b"line\nbreak", "ä".encode(), b"\x00"])
def test_a_request_id_that_is_not_sane_is_replaced(sent: bytes) -> None:
    made = copy_context().run(name_request, [(b"host", b"here"), (b"x-request-id", sent)])
    assert re.fullmatch(rb"[0-9a-f]{16}", made)


def test_a_rate_counts_the_gaps_between_starts() -> None:
    assert rate([JobStart(10.0, 0), JobStart(10.5, 0), JobStart(11.0, 0)]) == 2
    assert rate([JobStart(10.0, 0)]) == 0


def test_lateness_is_counted_from_the_expected_start() -> None:
    starts = [JobStart(1.0 + late / 1000, 1.0) for late in range(1, 101)]
    assert lateness_ms(starts, 0.5) == pytest.approx(51)
    assert lateness_ms(starts, 0.99) == pytest.approx(100)


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12,346 /s"), (42.42, "42.4 /s"), (0.987, "0.99 /s")])
def test_figures_have_as_many_digits_as_they_are_worth(value: float, text: str) -> None:
    assert shown(Figure("drain", "jobs", value, "/s")) == text


def test_a_smaller_scale_is_less_work_and_never_none() -> None:
    small = Amounts().scaled(0.01, None)
    assert small.queued_jobs == 2_000
    assert small.drain_jobs == 1_000
    assert Amounts().scaled(1, 77).drain_jobs == 77


def test_a_larger_scale_has_a_million_wait_without_growing_what_has_to_run() -> None:
    large = Amounts().scaled(10, None)
    assert large.scheduled_jobs == large.crowd_jobs == 1_000_000
    assert large.queued_jobs == Amounts().queued_jobs
