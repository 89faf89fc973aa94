"""`penstock autoscale simulate`"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from penstock.autoscaler.simulation.contest import CONTENDERS, Contest, Result, Scores, contest
from penstock.autoscaler.simulation.patterns import PATTERNS, made
from penstock.autoscaler.simulation.plot import svg
from penstock.autoscaler.simulation.trace import Trace, read_trace
from penstock.autoscaler.simulation.world import Machines
from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.spans import span
from penstock.cli.table import print_table
from penstock.model.errors import Invalid
from penstock.model.fleets import Fleet

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
    for trace, played in _played(work, machines, fleet):
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
        yield made(name, seed, scale)


def _played(work: Sequence[Trace], machines: Machines, fleet: Fleet) -> Iterator[tuple[Trace, Contest]]:
    """Each contest when it is over, with a bar for people who wait."""
    hidden = not sys.stderr.isatty()
    for trace in work:
        with click.progressbar(length=len(CONTENDERS), label=trace.name, file=sys.stderr, hidden=hidden) as bar:
            yield trace, contest(trace, machines, fleet, lambda _contender: bar.update(1))


def _print(scores: Scores) -> None:
    ink.say(ink.bold(f"{scores.trace}: {scores.jobs:,} jobs, {scores.work_seconds:,.0f} s of work"))
    print_table(HEADS, [_row(result) for result in scores.results], right=HEADS[1:])
    ink.say()


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
    ink.hint(f"drawn: {path}")
