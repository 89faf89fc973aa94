"""How a schedule and its ticks look to a person."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from penstock.cli import style
from penstock.cli.format import ago, lasted, lines, print_pairs, print_table
from penstock.model.errors import NotFound
from penstock.model.schedule import Misfire
from penstock.model.wire.schedules import ScheduleItem, TickItem

if TYPE_CHECKING:
    from penstock.client import Client


HEADS = ("NAME", "TYPE", "WHEN", "NEXT", "LAST", "RESULT")
TICK_HEADS = ("TICK", "", "RESULT", "JOB")


def print_schedules(items: Sequence[ScheduleItem], results: Mapping[str, str]) -> None:
    """One line per schedule; `results` say by name what became of its last tick."""
    rows = [
        (item.name, item.type, when(item), _next(item), ago(item.last_tick_at), results.get(item.name, "-"))
        for item in items
    ]
    print_table(HEADS, rows, right=("NEXT", "LAST"))


def print_schedule(item: ScheduleItem, last_result: str) -> None:
    """Everything worth knowing about one schedule; what is empty is left out."""
    print_pairs([(name, text) for name, text in _pairs(item, last_result) if text])


def print_ticks(ticks: Sequence[TickItem], results: Sequence[str]) -> None:
    """One line per tick, with what became of it."""
    rows = [
        (f"{tick.at.astimezone():%Y-%m-%d %H:%M:%S}", ago(tick.at), result, tick.job or "")
        for tick, result in zip(ticks, results, strict=True)
    ]
    print_table(TICK_HEADS, rows)


def local_times(ticks: Sequence[datetime], zone: str | None) -> Iterator[str]:
    """Instants in the schedule's own zone, with their distance from now."""
    zone_info = ZoneInfo(zone or "UTC")
    rows = [(f"{tick.astimezone(zone_info):%a %Y-%m-%d %H:%M:%S %Z}", ago(tick)) for tick in ticks]
    yield from lines(("TICK", ""), rows) if rows else ()


def when(item: ScheduleItem) -> str:
    """`every 1m 30s`, `5 s after completion`, `0 2 * * * Europe/Berlin`."""
    if item.interval is None:
        return f"{item.cron} {item.timezone}"
    span = lasted(timedelta(seconds=item.interval))
    return f"{span} after completion" if item.after_completion else f"every {span}"


def next_tick(item: ScheduleItem) -> str:
    """A sentence about what comes."""
    if item.paused:
        return f"paused; let it go with: penstock schedules resume {item.name}"
    if item.next_tick_at is None:
        return "ticks when its job has ended" if item.after_completion else "has no tick to come"
    return f"next tick {_instant(item.next_tick_at)}"


def _next(item: ScheduleItem) -> str:
    return style.warned("paused") if item.paused else ago(item.next_tick_at)


def _pairs(item: ScheduleItem, last_result: str) -> list[tuple[str, str]]:
    return [
        ("schedule", f"{item.name} (version {item.version})"),
        ("type", item.type),
        ("when", when(item)),
        ("jitter", _span(item.jitter_seconds)),
        ("next", _next(item) if item.paused else _instant(item.next_tick_at)),
        ("waiting", _instant(item.pending_tick_at)),
        ("last", f"{_instant(item.last_tick_at)}  {last_result}" if item.last_tick_at else ""),
        ("from", _instant(item.start_at)),
        ("until", _instant(item.end_at)),
        ("params", msgspec.json.encode(item.params).decode()),
        *_job_pairs(item),
        ("overlap", item.overlap),
        ("misfire", _misfire(item)),
        ("created", _instant(item.created_at)),
        ("changed", _instant(item.updated_at) if item.updated_at != item.created_at else ""),
    ]


def _misfire(item: ScheduleItem) -> str:
    most = f", at most {item.misfire_cap}" if item.misfire is Misfire.RUN_ALL else ""
    return f"{item.misfire}{most}, once late by {lasted(timedelta(seconds=item.misfire_grace_seconds))}"


def _job_pairs(item: ScheduleItem) -> list[tuple[str, str]]:
    """What the schedule says about its jobs, where it does not leave that to their type."""
    retry = item.retry_policy
    return [
        ("queue", item.queue or ""),
        ("priority", "" if item.priority is None else str(item.priority)),
        ("retry", f"{retry.kind} × {retry.max_attempts}" if retry else ""),
        ("timeout", _span(item.timeout_seconds)),
        ("tags", ", ".join(item.tags)),
    ]


def _instant(at: datetime | None) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({ago(at)})" if at is not None else ""


def _span(value: float | None) -> str:
    return lasted(timedelta(seconds=value)) if value else ""


def last_results(client: "Client", items: Sequence[ScheduleItem]) -> dict[str, str]:
    """By schedule, what became of its last tick; nothing for one that has not ticked."""
    ticked = [item.name for item in items if item.last_tick_at is not None]
    found = {name: next(client.ticks(name, page_size=1), None) for name in ticked}
    return {name: result_of(client, tick) for name, tick in found.items() if tick is not None}


def result_of(client: "Client", tick: TickItem) -> str:
    """The state of the tick's job now, or the reason it was skipped with."""
    if tick.job is None:
        return style.dim(f"skipped: {tick.skipped}")
    try:
        return style.state(client.get(tick.job).state)
    except NotFound:
        return style.dim("removed after its retention")
