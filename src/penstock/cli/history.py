"""`penstock history`: what happened over time, drawn in the terminal."""

import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import click

from penstock.cli import style
from penstock.cli.commands import command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import instant, lasted, span
from penstock.model.wire.history import HistoryReport, HistoryStep, Percentiles

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII_BLOCKS = " .:-=+*#@"
NAME_WIDTH = 10
NOTE_WIDTH = 28
LEAST_WIDTH = 20

Measure = Callable[[HistoryStep], float | None]

FLOWS = ("arrived", "started", "succeeded", "errored", "failed", "cancelled", "expired", "lost")
ALWAYS = ("arrived", "started", "succeeded")
DEPTHS = ("waiting", "running", "scheduled")


@command("history", "penstock history --last 6h --queue thumbnail")
@click.option("--last", metavar="SPAN", type=span, help="How far back from --to.  [default: 1h]")
@click.option("--from", "since", metavar="TIME", type=instant, help="The first instant, instead of --last.")
@click.option("--to", "until", metavar="TIME", type=instant, help="The last instant.  [default: now]")
@click.option("--step", metavar="SPAN", type=span, help="The length of a step, 10s or longer.  [default: what fits]")
@click.option("--queue", metavar="QUEUE", help="Jobs of this queue alone.")
@click.option("--type", "type_name", metavar="TYPE", help="Jobs of this type alone.")
@remote
def history(
    *,
    last: float | None,
    since: datetime | None,
    until: datetime | None,
    step: float | None,
    queue: str | None,
    type_name: str | None,
    server: RemoteServer,
) -> None:
    """Draw what happened over time: jobs that came, started and ended, how many waited, and how long."""
    if last is not None and since is not None:
        raise click.UsageError("give either --last or --from, not both")
    if last is not None:
        from penstock.model.clock import SystemClock

        since = (until or SystemClock().now()) - timedelta(seconds=last)
    report = server.ask(lambda client: client.history(since=since, until=until, step=step, queue=queue, type=type_name))
    server.show(report, lambda: print_history(report, shutil.get_terminal_size().columns))


def print_history(report: HistoryReport, columns: int) -> None:
    """One line per measure, a column per step; long spans are drawn with several steps in a column."""
    steps, width = report.steps, max(LEAST_WIDTH, columns - NAME_WIDTH - NOTE_WIDTH - 4)
    style.say(style.dim(_title(report)))
    for name in FLOWS:
        values = [float(getattr(step, name)) for step in steps]
        if name in ALWAYS or any(values):
            _print_line(name, _columns(values, width, sum), f"{sum(values):,.0f} in all")
    for name in DEPTHS:
        depths = [float(getattr(step, name)) for step in steps]
        note = f"now {depths[-1]:,.0f}, most {max(depths):,.0f}" if depths else "-"
        _print_line(name, _columns(depths, width, max), note)
    _print_times("wait p95", [step.wait for step in steps], width)
    _print_times("run p95", [step.run for step in steps], width)
    style.say(style.dim(_axis(report, len(_columns([0.0] * len(steps), width, max)))))
    if report.missing_shards:
        named = ", ".join(map(str, report.missing_shards))
        style.say(style.warned(f"without shard {named}, which did not answer"), err=True)


def _title(report: HistoryReport) -> str:
    which = " ".join(
        part for part in (report.queue and f"queue {report.queue}", report.type and f"type {report.type}") if part
    )
    step = lasted(timedelta(seconds=report.step_seconds))
    return f"{which or 'all jobs'}, {len(report.steps)} steps of {step}"


def _print_times(name: str, times: Sequence[Percentiles | None], width: int) -> None:
    values = [0.0 if one is None else one.p95 for one in times]
    if any(one is not None for one in times):
        _print_line(name, _columns(values, width, max), f"most {lasted(timedelta(seconds=max(values)))}")


def _print_line(name: str, values: Sequence[float], note: str) -> None:
    style.say(f"{name:<{NAME_WIDTH}}  {_bars(values)}  {note}")


def _columns(values: Sequence[float], width: int, merge: Callable[[Sequence[float]], float]) -> list[float]:
    """At most `width` values: neighbours are merged where there are more."""
    size = -(-len(values) // width) or 1
    return [merge(values[start : start + size]) for start in range(0, len(values), size)]


def _bars(values: Sequence[float]) -> str:
    blocks = BLOCKS if _draws_blocks() else ASCII_BLOCKS
    most = max(values, default=0.0)
    if most <= 0:
        return blocks[0] * len(values)
    # What is above zero is always seen, however small.
    return "".join(blocks[0 if value <= 0 else max(1, round(value / most * (len(blocks) - 1)))] for value in values)


def _draws_blocks() -> bool:
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _axis(report: HistoryReport, width: int) -> str:
    """The first and the last instant, in local time, at the ends of the picture."""
    days = report.until - report.since > timedelta(days=1)
    text = "%d %b %H:%M" if days else "%H:%M:%S" if report.step_seconds < 60 else "%H:%M"
    left, right = (at.astimezone().strftime(text) for at in (report.since, report.until))
    return f"{'':<{NAME_WIDTH}}  {left}{right.rjust(max(1, width - len(left)))}"
