"""`penstock autoscale`: how a fleet would scale, on made work or on the history of ended jobs."""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click
import msgspec

from penstock.cli import options, style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import connect
from penstock.cli.format import PAGE, print_json, print_table, span
from penstock.lab.simulation.contest import CONTENDERS, PATTERNS, Contest, Result, Scores, contest, make_trace
from penstock.lab.simulation.plot import svg
from penstock.lab.simulation.world import Machines, Trace, TracedJob, read_trace
from penstock.model.errors import Invalid
from penstock.model.fleets import Fleet
from penstock.model.wire.jobs import JobItem

autoscale = CommandGroup(
    name="autoscale",
    help="Try a scaling policy on a trace, before it has a fleet.",
    examples=("penstock autoscale simulate --pattern burst",),
    lazy={
        "simulate": (
            "penstock.lab.simulation.command:simulate",
            "Simulate a fleet beside its rivals, on a pattern or a trace.",
        ),
        "export": ("penstock.lab.simulation.command:export", "Write the history of ended jobs as a trace."),
    },
)


FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
HEADS = ("", "WAIT P50", "P95", "P99", "WORKER-SECONDS", "× CLAIRVOYANT", "× WORK", "STARTS", "PEAK")


@command(
    "simulate",
    "penstock autoscale simulate --pattern burst --plot burst.svg",
    "penstock autoscale simulate --trace history.jsonl --target-wait 30s --startup 20s",
)
@click.option(
    "--pattern", "patterns", type=click.Choice(tuple(PATTERNS)), multiple=True, help="Made work; may be repeated."
)
@click.option("--trace", "traces", type=FILE, multiple=True, help="Real work: JSON lines with `at` and `seconds`.")
@click.option("--fleet", "file", type=FILE, help="Fleet to try, as JSON.  [default: one with --target-wait, --max]")
@click.option("--target-wait", type=span, default="15s", show_default=True, help="Wait that jobs should not exceed.")
@click.option(
    "--startup", type=span, default="5s", show_default=True, help="From asking for a worker to its first job."
)
@click.option("--capacity", type=click.IntRange(1), default=1, show_default=True, help="Jobs a worker runs at once.")
@click.option(
    "--max", "most", type=click.IntRange(1), default=400, show_default=True, help="Most workers, for everyone."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the patterns.")
@click.option("--scale", type=click.FloatRange(0.01, 100), default=1.0, show_default=True, help="Size of the patterns.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw backlog and workers: FILE.svg.")
@options.as_json
def simulate(
    *,
    patterns: Sequence[str],
    traces: Sequence[Path],
    file: Path | None,
    target_wait: float,
    startup: float,
    capacity: int,
    most: int,
    seed: int,
    scale: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Simulate a fleet under the real policy on a virtual clock, beside its rivals.

    In the same run: two step alarms with periods of a minute, KEDA with an HPA at their defaults, the smallest fixed
    size whose p95 is no worse than ours, and one that knows the future. Without --pattern and --trace: all patterns.
    """
    if plot is not None and plot.suffix != ".svg":
        raise click.UsageError(f"--plot draws SVG only; name a file such as {plot.with_suffix('.svg')}")
    fleet = _fleet(file) if file else Fleet(max=most, target_wait=target_wait)
    machines = Machines(startup, capacity, most)
    work = list(_work(patterns, traces, seed, scale))
    for trace, played in _play(work, machines, fleet):
        if as_json:
            print_json(played.scores)
        else:
            _print(played.scores)
        if plot is not None:
            _draw(plot if len(work) == 1 else plot.with_stem(f"{plot.stem}-{trace.name}"), played)


def _fleet(file: Path) -> Fleet:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Fleet)
    except msgspec.DecodeError as wrong:
        raise Invalid(f"{file}: {wrong}; write a fleet such as {{'max': 20, 'target_wait_seconds': 5}}") from None


def _work(patterns: Sequence[str], traces: Sequence[Path], seed: int, scale: float) -> Iterator[Trace]:
    yield from map(read_trace, traces)
    for name in patterns or (() if traces else PATTERNS):
        yield make_trace(name, seed, scale)


def _play(work: Sequence[Trace], machines: Machines, fleet: Fleet) -> Iterator[tuple[Trace, Contest]]:
    """Each contest when it is over, with a bar for people who wait."""
    hidden = not sys.stderr.isatty()
    for trace in work:
        with click.progressbar(length=len(CONTENDERS), label=trace.name, file=sys.stderr, hidden=hidden) as bar:
            yield trace, contest(trace, machines, fleet, lambda _contender: bar.update(1))


def _print(scores: Scores) -> None:
    style.say(style.bold(f"{scores.trace}: {scores.jobs:,} jobs, {scores.work_seconds:,.0f} s of work"))
    print_table(HEADS, [_row(result) for result in scores.results], right=HEADS[1:])
    style.say()


def _row(result: Result) -> tuple[str, ...]:
    waits = (result.wait_p50_seconds, result.wait_p95_seconds, result.wait_p99_seconds)
    return (
        result.contender,
        *(f"{wait:.1f} s" for wait in waits),
        f"{result.worker_seconds:,.0f}",
        f"{result.to_clairvoyant:.2f}",
        f"{result.to_work:.2f}",
        str(result.starts),
        str(result.peak),
    )


def _draw(path: Path, played: Contest) -> None:
    path.write_text(svg(played))
    style.hint(f"drawn: {path}")


@command(
    "export",
    "penstock autoscale export --queue thumbnail > thumbnail.jsonl",
    "penstock autoscale simulate --trace thumbnail.jsonl",
)
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--type", "type_name", metavar="TYPE", help="Only jobs of this type.")
@click.option("--limit", type=click.IntRange(1), default=100_000, show_default=True, help="Most jobs, the newest.")
@options.url
@options.config
def export(*, queue: str | None, type_name: str | None, limit: int, url: str | None, config: Path | None) -> None:
    """Write the history of ended jobs as a trace, one line each, for `penstock autoscale simulate --trace`.

    Nothing of what a job did is in it: when it became due, how long it ran, and how long before it was known.
    """
    with connect(url, config) as client:
        ended = (job for job in client.list(type=type_name, queue=queue, page_size=PAGE) if job.completed_at)
        traced = [one for one in map(line_of, islice(ended, limit)) if one is not None]
    for one in reversed(traced):
        click.echo(msgspec.json.encode(one))
    if not traced:
        style.say("no such jobs have run and ended; nothing to export", err=True)


def line_of(job: JobItem) -> TracedJob | None:
    """A job's line; None if it never ran."""
    if job.started_at is None or job.completed_at is None:
        return None
    due = max(job.scheduled_at, job.created_at)
    known = (due - job.created_at).total_seconds()
    return TracedJob(due.timestamp(), (job.completed_at - job.started_at).total_seconds(), known)
