"""The history as the terminal shows it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.cli.history import print_history
from penstock.model.ids import ShardId
from penstock.model.wire.history import HistoryReport, HistoryStep, Percentiles

Captured = pytest.CaptureFixture[str]
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def report(count: int, **measured: Sequence[object]) -> HistoryReport:
    measures: dict[str, Any] = dict.fromkeys(set(HistoryStep.__struct_fields__) - {"at", "wait", "run"}, 0)
    steps = tuple(
        HistoryStep(at=NOON + timedelta(minutes=number), **measures | {k: v[number] for k, v in measured.items()})
        for number in range(count)
    )
    until = NOON + timedelta(minutes=count)
    return HistoryReport(since=NOON, until=until, step_seconds=60, steps=steps, missing_shards=(ShardId(2),))


def printed(capsys: Captured, given: HistoryReport, columns: int = 60) -> tuple[str, str]:
    print_history(given, columns)
    out, err = capsys.readouterr()
    return out, err


def test_every_step_above_zero_is_seen_and_empty_ones_are_blank(capsys: Captured) -> None:
    out = printed(capsys, report(4, arrived=[0, 1, 1000, 0]))[0]
    assert "arrived      ▁█   1,001 in all" in out


def test_measures_that_never_happened_are_left_out(capsys: Captured) -> None:
    out = printed(capsys, report(2, failed=[0, 0], errored=[0, 3]))[0]
    assert "errored" in out
    assert "failed" not in out


def test_more_steps_than_columns_are_merged_and_no_job_is_lost(capsys: Captured) -> None:
    out = printed(capsys, report(400, arrived=[1] * 400), columns=80)[0]
    line = next(line for line in out.splitlines() if line.startswith("arrived"))
    assert "400 in all" in line
    assert len(line) <= 80


def test_waits_name_the_longest(capsys: Captured) -> None:
    waits = [None, Percentiles(1.0, 2.5, 3.0)]
    assert "wait p95" in (out := printed(capsys, report(2, wait=waits))[0])
    assert "most 2.5 s" in out


def test_a_shard_that_is_missing_is_named(capsys: Captured) -> None:
    assert "without shard 2" in printed(capsys, report(1))[1]
