"""`penstock bench`: measures what this machine reaches, part by part."""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
from msgspec import Struct, field

from penstock import __version__
from penstock.cli import options, style
from penstock.cli.commands import command
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import print_json, print_table
from penstock.lab.bench.events import events
from penstock.lab.bench.footprint import idle, memory, startup, zero
from penstock.lab.bench.journal import journal
from penstock.lab.bench.latency import due, latency
from penstock.lab.bench.machine import Calibration, calibrate
from penstock.lab.bench.rig import Amounts, Engines, Figure, Workshop
from penstock.lab.bench.throughput import bulk, drain, growth, submit
from penstock.lab.children import interruptible
from penstock.model.errors import PenstockError
from penstock.model.extras import require

Part = Callable[[Workshop, Amounts], list[Figure]]

PARTS: dict[str, Part] = {
    "startup": startup,
    "drain": drain,
    "submit": submit,
    "bulk": bulk,
    "latency": latency,
    "due": due,
    "growth": growth,
    "zero": zero,
    "memory": memory,
    "idle": idle,
    "journal": journal,
    "events": events,
}
"""The parts in the order they run. Each starts an empty system and returns the figures it measured."""

CLEAR_LINE = "\r\033[K"


class Report(Struct):
    """All results of a run: figures, and by part why it could not be measured."""

    version: str
    command: str
    machine: Calibration
    figures: list[Figure] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


@command(
    "bench",
    "penstock bench",
    "penstock bench --parts drain,latency --jobs 100000 --json",
    "penstock bench --store postgresql://bench@127.0.0.1/postgres --broker redis://127.0.0.1:6379",
)
@click.option("--parts", metavar="PART,…", help=f"Only these of: {', '.join(PARTS)}.")
@click.option("--jobs", type=click.IntRange(100), metavar="N", help="Jobs of the drain part.  [default: 40000]")
@click.option("--scale", type=click.FloatRange(0.001, 100), default=1.0, show_default=True, help="Size of all parts.")
@click.option("--data", metavar="DIR", help="Folder for the servers' data: its disk is measured.  [default: temporary]")
@click.option("--store", metavar="URL", help="Keep jobs on this PostgreSQL server, in databases made for the run.")
@click.option("--broker", metavar="URL", help="Keep tickets on this Redis or Valkey server.")
@options.executors
@options.capacity
@options.as_json
def bench(
    *,
    parts: str | None,
    jobs: int | None,
    scale: float,
    data: str | None,
    store: str | None,
    broker: str | None,
    executors: int | None,
    capacity: int | None,
    as_json: bool,
) -> int:
    """Measure what this machine reaches through the real path, on the embedded default or on the servers you name.

    Each part starts its own server and worker, as `penstock up` does, on a free port and an empty folder. The load
    generator shares the cores with them: it uses bare sockets, so that it takes little of what it measures.
    Exits 1 if a part could not be measured; the others are.
    """
    chosen = _choose(parts)
    require(*(extra for extra, url in (("postgres", store), ("redis", broker)) if url))
    amounts = Amounts().scaled(scale, jobs)
    with interruptible(), tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=data) as folder:
        report = Report(__version__, _command(), calibrate(Path(folder)))
        workshop = Workshop(Path(folder), _flags(executors, capacity), Engines(store, broker))
        for name in chosen:
            _measure(name, workshop, amounts, report)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return REFUSED if report.failures else 0


def _choose(parts: str | None) -> list[str]:
    names = [name.strip() for name in parts.split(",")] if parts else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise click.UsageError(f"no such part: {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    return names


def _flags(executors: int | None, capacity: int | None) -> list[str]:
    given = {"--executors": executors, "--capacity": capacity}
    return [word for flag, value in given.items() if value is not None for word in (flag, str(value))]


def _measure(name: str, workshop: Workshop, amounts: Amounts, report: Report) -> None:
    """Run a part, add its figures to the report and print a line about it."""
    live = sys.stderr.isatty()
    if live:
        click.echo(f"  {name} …", nl=False, err=True)
    began = time.monotonic()
    try:
        figures = PARTS[name](workshop, amounts)
        headline = f"{figures[0].name}: {shown(figures[0])}" if figures else "nothing to measure on this system"
        report.figures.extend(figures)
    except PenstockError as failure:
        headline = style.bad(f"failed: {failure.message}")
        report.failures[name] = failure.message
    took = style.dim(f"({time.monotonic() - began:.0f} s)")
    style.say(f"{CLEAR_LINE if live else ''}  {name:<8}  {headline}  {took}", err=True)


def _print(report: Report) -> None:
    machine = report.machine
    style.say()
    rows = [(figure.part, figure.name, shown(figure), figure.note) for figure in report.figures]
    print_table(("PART", "WHAT", "FIGURE", ""), rows, right=("FIGURE",))
    style.say()
    style.say(style.dim(f"penstock {report.version}, Python {machine.python}, {machine.cores} cores, {machine.system}"))
    before = f"fdatasync {machine.fdatasync_ms * 1000:.0f} µs, cpu loop {machine.cpu_loop_ms:.0f} ms"
    style.say(style.dim(f"{before}, load {machine.load_average:.1f} before the first part"))
    style.say(style.dim(f"command: {report.command}"))


def _command() -> str:
    return " ".join(["penstock", *sys.argv[1:]])


def shown(figure: Figure) -> str:
    """A figure with at most three significant digits, and its unit."""
    digits = 0 if figure.value >= 100 else 1 if figure.value >= 10 else 2
    return f"{figure.value:,.{digits}f} {figure.unit}"
