"""Schedules on the command line: what is asked of the client, and how the answers look to a person."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from penstock.cli import ROOT, schedule_format
from penstock.model.clock import SystemClock
from penstock.model.errors import NotFound
from penstock.model.ids import JobId
from penstock.model.lifecycle import State
from penstock.model.wire.schedules import ScheduleItem, TickItem
from penstock.model.wire.types import TypeItem
from tests.unit.test_client_protocol import ID, item
from tests.unit.test_client_schedules import schedule

ROWS = {"type": "object", "properties": {"rows": {"type": "integer"}, "title": {"type": "string"}}}


class RecordingClient:
    """Answers like a server with one schedule, and keeps what it was asked."""

    def __init__(self, items: list[ScheduleItem], ticks: list[TickItem]) -> None:
        self.items = items
        self.history = ticks
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any, **named: Any) -> Any:
            self.asked.append((name, args, named))
            answer = vars(type(self)).get(f"_{name}", RecordingClient._item)
            return answer(self, *args)

        return ask

    def _item(self, *_: object) -> ScheduleItem:
        return self.items[0]

    def _types(self) -> tuple[TypeItem, ...]:
        return (
            TypeItem(name="report", queue="report", declared_at=SystemClock().now(), signature="", params_schema=ROWS),
        )

    def _schedules(self) -> Iterator[ScheduleItem]:
        return iter(self.items)

    def _ticks(self, _name: str) -> Iterator[TickItem]:
        return iter(self.history)

    def _get(self, job: str) -> Any:
        if job != ID:
            raise NotFound("gone")
        return item(state=State.SUCCEEDED)

    def _trigger(self, _name: str) -> Any:
        return item()

    def _preview(self, *_: object) -> tuple[datetime, ...]:
        return (datetime(2026, 12, 24, 1, tzinfo=UTC),)

    def _preview_of(self, *_: object) -> tuple[datetime, ...]:
        return ()

    def _backfill(self, *_: object) -> tuple[TickItem, ...]:
        return tuple(self.history)

    @property
    def last(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        return self.asked[-1]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> RecordingClient:
    now = SystemClock().now()
    nightly = schedule(
        interval=None, cron="0 2 * * *", timezone="Europe/Berlin", next_tick_at=now + timedelta(hours=3.1),
        last_tick_at=now - timedelta(hours=21), params=msgspec.Raw(b'{"rows":7}'),
    )  # fmt: skip
    ran, skipped = (
        TickItem(now - timedelta(hours=21), JobId(ID), None),
        TickItem(now - timedelta(days=2), None, "overlap"),
    )
    client = RecordingClient([nightly, schedule("poll", paused=True)], [ran, skipped])

    @contextmanager
    def connect(*_: object) -> Iterator[RecordingClient]:
        yield client

    monkeypatch.setattr("penstock.cli.connection.connect", connect)
    return client


def run(*words: str) -> Result:
    return CliRunner().invoke(ROOT, ["schedules", *words], prog_name="penstock", catch_exceptions=False)


def test_create_says_everything_that_was_said_and_nothing_else(client: RecordingClient) -> None:
    shown = run("create", "nightly", "report", "rows=7", "title=2026", "--cron", "0 2 * * *",
                "--timezone", "Europe/Berlin", "--overlap", "skip", "--jitter", "30s", "--tag", "money")  # fmt: skip
    assert shown.exit_code == 0, shown.output
    name, args, named = client.last
    assert (name, args) == ("schedule", ("nightly", "report", {"rows": 7, "title": "2026"}))
    assert named == {
        "on_conflict": "raise", "cron": "0 2 * * *", "timezone": "Europe/Berlin", "overlap": "skip", "jitter": 30.0,
        "tags": ("money",),
    }  # fmt: skip
    assert shown.output.startswith("nightly (version 1): next tick ")
    assert shown.output.endswith("(in 3h)\n")


def test_update_says_only_what_changes(client: RecordingClient) -> None:
    assert run("update", "nightly", "--interval", "90s", "--paused").exit_code != 0
    assert run("update", "nightly", "rows=9", "title=7", "--interval", "90s").exit_code == 0
    changes = {"interval": 90.0, "params": {"rows": 9, "title": "7"}}
    assert client.last == ("update_schedule", ("nightly",), changes)
    assert "nothing to change" in run("update", "nightly").output


def test_the_list_has_next_and_last_ticks_and_what_became_of_them(client: RecordingClient) -> None:
    assert [line.split() for line in run("list").output.splitlines()] == [
        ["NAME", "TYPE", "WHEN", "NEXT", "LAST", "RESULT"],
        ["nightly", "report", "0", "2", "*", "*", "*", "Europe/Berlin", "in", "3h", "21h", "ago", "succeeded"],
        ["poll", "report", "every", "1m", "0s", "paused", "-", "-"],
    ]


def test_the_list_is_what_is_meant_without_a_command(client: RecordingClient) -> None:
    assert run().output == run("list").output


def test_one_schedule_in_full(client: RecordingClient) -> None:
    told = run("show", "nightly").output
    for words in ("nightly (version 1)", "0 2 * * * Europe/Berlin", '{"rows":7}', "run_once", "allow", "succeeded"):
        assert words in told
    assert "queue" not in told


def test_the_history_names_the_job_or_the_reason(client: RecordingClient) -> None:
    first, second = run("history", "nightly").output.splitlines()[1:]
    assert ID in first
    assert "succeeded" in first
    assert "skipped: overlap" in second


def test_a_job_that_is_gone_is_told_so(client: RecordingClient) -> None:
    client.history = [TickItem(SystemClock().now(), JobId("gone"), None)]
    assert "removed after its retention" in run("history", "nightly").output


def test_a_preview_is_told_in_the_zone_of_the_schedule(client: RecordingClient) -> None:
    assert "Thu 2026-12-24 02:00:00 CET" in run("preview", "nightly").output
    assert run("preview", "--cron", "@daily", "--count", "3").output == "no tick to come\n"
    assert client.asked[1:] == [("preview", ("nightly", 10), {}), ("preview_of", (3,), {"cron": "@daily"})]


@pytest.mark.parametrize("words", [["preview"], ["preview", "nightly", "--cron", "@daily"]])
def test_a_preview_is_of_one_thing(client: RecordingClient, words: list[str]) -> None:
    shown = run(*words)
    assert shown.exit_code == 2
    assert "give the NAME of a schedule" in shown.output
    assert client.asked == []


def test_a_backfill_needs_both_ends(client: RecordingClient) -> None:
    assert run("backfill", "nightly", "--from", "2026-11-01T00:00Z").exit_code == 2
    shown = run("backfill", "nightly", "--from", "2026-11-01T00:00Z", "--to", "2026-11-08T00:00Z")
    assert shown.output.startswith("2 ticks got a job")
    assert client.last[1] == ("nightly", datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC))


def test_a_trigger_prints_the_jobs_id(client: RecordingClient) -> None:
    assert run("trigger", "nightly").output == f"{ID}\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "delete"])
def test_many_can_be_named(client: RecordingClient, verb: str) -> None:
    assert run(verb, "nightly", "poll").exit_code == 0
    assert [(name, args) for name, args, _ in client.asked] == [
        (f"{verb}_schedule", ("nightly",)),
        (f"{verb}_schedule", ("poll",)),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["create", "n", "report", "--interval", "5s"], ["list"], ["show", "nightly"], ["pause", "n"], ["trigger", "n"],
        ["preview", "n"], ["history", "n"], ["delete", "n"], ["update", "n", "--interval", "5s"],
        ["backfill", "n", "--from", "2026-11-01T00:00Z", "--to", "2026-11-08T00:00Z"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_everything_speaks_json_one_document_per_line(client: RecordingClient, words: list[str]) -> None:
    (line,) = run(*words, "--json").output.splitlines()
    assert isinstance(msgspec.json.decode(line), dict)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"interval": 90.0}, "every 1m 30s"),
        ({"interval": 5.0, "after_completion": True}, "5 s after completion"),
        ({"interval": None, "cron": "@daily", "timezone": "UTC"}, "@daily UTC"),
    ],
)
def test_when_in_words(changes: dict[str, Any], words: str) -> None:
    assert schedule_format.when(schedule(**changes)) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"paused": True}, "paused; let it go with"),
        ({"next_tick_at": None}, "has no tick to come"),
        ({"next_tick_at": None, "after_completion": True}, "ticks when its job has ended"),
    ],
)
def test_what_comes_in_words(changes: dict[str, Any], words: str) -> None:
    assert click.unstyle(schedule_format.next_tick(schedule(**changes))).startswith(words)
