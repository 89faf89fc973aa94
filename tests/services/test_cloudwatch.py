"""Metrics for CloudWatch: lines in the embedded metric format that tell the truth about queues, or nothing."""

import json
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.memory import MemoryBroker
from penstock.config import MetricsSettings, Settings
from penstock.engine import Engine
from penstock.model.clock import within
from penstock.model.fleet_readings import Unknown
from penstock.objects.folder import FolderObjects
from penstock.runtime.services import metrics_loops
from penstock.scheduler.cloudwatch import UNITS, QueueGauge, QueueMetrics, metric_line, read_gauges
from penstock.testing.clock import START, SimulatedClock
from tests.services.engine_steps import claim, join, submit, success
from tests.services.faulty_shards import Behaviour, FaultyShards

UNITS_OF_CLOUDWATCH = {"Seconds", "Microseconds", "Milliseconds", "Bytes", "Count", "Percent", "None"}


def check_shape(line: str) -> dict[str, Any]:
    """The line, if CloudWatch would take it: the rules of its specification of the embedded metric format."""
    assert "\n" not in line
    told: dict[str, Any] = json.loads(line)
    meta = told["_aws"]
    assert isinstance(meta["Timestamp"], int)
    assert meta["Timestamp"] > 1_000_000_000_000
    for directive in meta["CloudWatchMetrics"]:
        assert 1 <= len(directive["Namespace"]) <= 1024
        assert len(directive["Metrics"]) <= 100
        for dimensions in directive["Dimensions"]:
            assert len(dimensions) <= 30
            assert all(isinstance(told[name], str) and 1 <= len(told[name]) <= 1024 for name in dimensions)
        for metric in directive["Metrics"]:
            assert metric["Unit"] in UNITS_OF_CLOUDWATCH
            assert isinstance(told[metric["Name"]], int | float)
            assert not isinstance(told[metric["Name"]], bool)
    return told


def test_a_line_has_the_shape_that_cloudwatch_takes() -> None:
    told = check_shape(metric_line(QueueGauge("mail", 3, 2, 1.23456), START))
    (directive,) = told["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Penstock"
    assert directive["Dimensions"] == [["Queue"]]
    assert {one["Name"]: one["Unit"] for one in directive["Metrics"]} == UNITS
    assert {name: told[name] for name in ("Queue", "Backlog", "Running", "OldestSeconds")} == {
        "Queue": "mail",
        "Backlog": 3,
        "Running": 2,
        "OldestSeconds": 1.235,
    }


async def test_backlog_running_and_oldest_wait_are_told(engine: Engine, clock: SimulatedClock) -> None:
    await join(engine)
    for number in range(3):
        await submit(engine, "add", {"a": number})
    await claim(engine, "w1", limit=1)
    clock.advance(timedelta(seconds=40))
    lines: list[str] = []
    await QueueMetrics(engine, lines.append).step()
    told = {one["Queue"]: one for one in map(check_shape, lines)}
    assert [told["sums"][name] for name in ("Backlog", "Running", "OldestSeconds")] == [2, 1, 40.0]


async def test_a_queue_that_has_become_empty_is_told_as_0(engine: Engine) -> None:
    await join(engine)
    await submit(engine, "add", {"a": 1})
    lines: list[str] = []
    metrics = QueueMetrics(engine, lines.append)
    await metrics.step()
    await engine.worker_api.settle([success(one) for one in await claim(engine, "w1", limit=10)])
    lines.clear()
    await metrics.step()
    told = {one["Queue"]: one for one in map(json.loads, lines)}
    assert [told["sums"][name] for name in ("Backlog", "Running", "OldestSeconds")] == [0, 0, 0.0]


async def test_a_queue_that_is_there_no_more_is_told_as_0_once(engine: Engine) -> None:
    lines: list[str] = []
    metrics = QueueMetrics(engine, lines.append)
    for gauges in ([QueueGauge("mail", 5)], [], []):
        metrics.tell(gauges)
    assert [json.loads(line)["Backlog"] for line in lines] == [5, 0]


async def read_known(engine: Engine) -> Sequence[QueueGauge]:
    gauges = await read_gauges(engine)
    assert not isinstance(gauges, Unknown)
    return gauges


async def test_while_a_shard_does_not_answer_nothing_is_told(tmp_path: Path) -> None:
    async with FaultyShards(tmp_path) as shards:
        store = await shards.orchestrator(range(2))
        engine = Engine(
            store, MemoryBroker(), FolderObjects(tmp_path, shards.clock), Settings(), shards.clock, random.Random(1)
        )
        await shards.submit(store, 0)
        assert [one.backlog for one in await read_known(engine)] == [1]
        # One call that fails: the shard does not count as down yet.
        shards.shard(1).behaviour = Behaviour.RAISES
        assert isinstance(await read_gauges(engine), Unknown)


async def test_an_unknown_reading_is_not_told(engine: Engine) -> None:
    lines: list[str] = []
    metrics = QueueMetrics(engine, lines.append)
    metrics.tell([QueueGauge("mail", 5)])
    metrics.tell(Unknown("no answer from shard 1"))
    assert len(lines) == 1


async def test_schedulers_and_autoscalers_print_metrics_where_the_settings_say(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert metrics_loops(engine) == []
    engine.settings = Settings(metrics=MetricsSettings(cloudwatch=True))
    await join(engine)
    (loop,) = metrics_loops(engine)
    # Its rest is a minute of real time: the timeout ends it after the first step.
    await within(timedelta(seconds=1), loop)
    told = capsys.readouterr().out
    assert {check_shape(line)["Queue"] for line in told.splitlines()} == {"sums", "other"}
