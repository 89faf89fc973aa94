"""GET /v1/history, as a client sees it."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from penstock.config import EventSettings, Settings
from penstock.model.wire.history import HistoryReport, HistoryStep
from tests.http.api_calls import Client, claim, problem, submit


async def read(client: Client, **query: str | int) -> dict[str, object]:
    answer = await client.get("/v1/history", params=query)
    answer.raise_for_status()
    return dict(answer.json())


def total(report: dict[str, object], name: str) -> int:
    steps = report["steps"]
    assert isinstance(steps, list)
    return sum(step[name] for step in steps)


def last(report: dict[str, object]) -> dict[str, object]:
    steps = report["steps"]
    assert isinstance(steps, list)
    return dict(steps[-1])


async def test_what_came_started_and_waits_is_told_at_once(client: Client) -> None:
    for _ in range(3):
        await submit(client)
    await submit(client, delay_seconds=60)
    await claim(client, limit=2)
    report = await read(client)
    assert (total(report, "arrived"), total(report, "started")) == (4, 2)
    now = last(report)
    assert (now["waiting"], now["running"], now["scheduled"]) == (1, 2, 1)
    assert report["missing_shards"] == []


async def test_waits_are_told_where_jobs_were_started(client: Client) -> None:
    await submit(client)
    await claim(client, limit=1)
    steps = (await read(client))["steps"]
    assert isinstance(steps, list)
    waits = [step["wait"] for step in steps if step["started"]]
    assert len(waits) == 1
    assert 0 <= waits[0]["p50"] <= waits[0]["p99"] < 60


async def test_a_queue_and_a_type_restrict_it(client: Client) -> None:
    await submit(client)
    assert total(await read(client, queue="other"), "arrived") == 1
    assert total(await read(client, queue="sums"), "arrived") == 0
    assert total(await read(client, type="other"), "arrived") == 1
    assert total(await read(client, type="add"), "arrived") == 0


async def test_steps_are_as_long_as_asked_and_cover_the_span(client: Client) -> None:
    until = datetime.now(UTC).replace(microsecond=0)
    since = (until - timedelta(minutes=10)).isoformat()
    report = await read(client, **{"from": since, "to": until.isoformat(), "step": "60"})
    steps = report["steps"]
    assert isinstance(steps, list)
    starts = [datetime.fromisoformat(step["at"]) for step in steps]
    assert {after - before for before, after in pairwise(starts)} == {timedelta(minutes=1)}
    assert len(starts) in (10, 11)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"from": "2026-11-18T12:00:00Z", "to": "2026-11-18T11:00:00Z"}, "from"),
        ({"step": 15}, "step"),
        ({"step": 5}, "step"),
        ({"from": "9999-12-31T23:59:59-12:00"}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"queue": "no name"}, "queue"),
        ({"since": "2026-11-18T12:00:00Z"}, "since"),
        ({"from": "2000-01-01T00:00:00Z", "step": 3600}, "steps"),
    ],
)
async def test_what_cannot_be_told_is_refused_by_name(client: Client, query: dict[str, str], named: str) -> None:
    assert named in problem(await client.get("/v1/history", params=query), 422, "invalid")


async def test_an_answer_is_what_the_reference_says(client: Client) -> None:
    await submit(client)
    report = await read(client)
    steps = report["steps"]
    assert isinstance(steps, list)
    assert set(report) == {"from", "to", "step_seconds", "queue", "type", "steps", "missing_shards"}
    assert set(steps[0]) == set(HistoryStep.__struct_fields__)
    assert HistoryReport.__doc__


class TestWithoutTheJournal:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, events=EventSettings(keep=False))

    async def test_history_is_refused_and_names_the_setting(self, client: Client) -> None:
        assert "events.keep" in problem(await client.get("/v1/history"), 409, "events_not_kept")
