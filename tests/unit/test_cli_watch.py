"""What `penstock jobs watch` prints about a job's stream."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from penstock.cli import watch
from penstock.client import Client
from penstock.client.event_calls import JobUpdate
from penstock.model.errors import Conflict
from penstock.model.ids import JobId
from penstock.model.job import Job, LogLine, Progress
from penstock.model.lifecycle import State
from penstock.model.retry import Retry
from penstock.model.wire.events import ProgressItem
from penstock.model.wire.jobs import JobItem, job_item
from tests.unit.test_client_streams import item as event

AT = datetime(2026, 1, 1, tzinfo=UTC)
JOB = JobId("0190a6e2-0000-7000-8000-000000000000")


def seen(state: State, attempt: int = 1) -> JobItem:
    job = Job(id=JOB, type="add", queue="sums", state=state, created_at=AT, due_at=AT, retry=Retry.none())
    return job_item(replace(job, attempt=attempt))


class ScriptedClient:
    """Gives the items one after the other, the last for ever; and the updates as a stream."""

    def __init__(self, items: Sequence[JobItem], updates: Sequence[JobUpdate] | None) -> None:
        self._items = list(items)
        self._updates = updates

    def get(self, job: str) -> JobItem:
        return self._items.pop(0) if len(self._items) > 1 else self._items[0]

    def stream(self, job: str) -> Iterator[JobUpdate]:
        if self._updates is None:
            raise Conflict("events are not kept here")
        yield from self._updates


def follow(items: Sequence[JobItem], updates: Sequence[JobUpdate] | None, *, as_json: bool = False) -> JobItem:
    client: Any = ScriptedClient(items, updates)
    return watch.follow(cast(Client, client), JOB, watch.Follower(as_json=as_json))


UPDATES = (
    event(2),
    ProgressItem(Progress(0.5, "half"), 1),
    LogLine(AT, "stdout", "half way"),
    event(3, State.SUCCEEDED),
)
LIFE = [seen(State.QUEUED, 0), seen(State.RUNNING), seen(State.SUCCEEDED)]


def test_changes_and_lines_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(LIFE, UPDATES).state is State.SUCCEEDED
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in (lines[0], lines[1], lines[3])] == ["queued", "running", "succeeded"]
    assert lines[2].endswith("half way")


def test_on_a_terminal_there_is_a_bar_below_the_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    follow(LIFE, UPDATES)
    printed = capsys.readouterr().out.split(watch.CLEAR_LINE)
    bar = f"  {'█' * 12}{'░' * 12}  50%  half"
    assert printed.count(bar) == 2
    assert printed[printed.index(bar) + 1].endswith("half way\n")
    assert printed[-1] == ""


def test_json_has_the_job_after_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    follow(LIFE, UPDATES, as_json=True)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_server_without_events_is_asked_again_and_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0)
    again = replace(LIFE[1], reason="asked to cancel")
    assert follow([LIFE[0], LIFE[1], again, LIFE[2]], None).state is State.SUCCEEDED
    assert len(capsys.readouterr().out.splitlines()) == 4
