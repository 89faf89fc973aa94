"""The options that say when a schedule ticks, what its jobs are like and what happens when ticks meet trouble."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.format import instant, span
from penstock.model.retry import RetryKind
from penstock.model.schedule import Misfire, Overlap

F = TypeVar("F", bound=Callable[..., Any])

WHEN = (
    click.option("--interval", type=span, metavar="SPAN", help="Tick this often, such as 90s or 1h."),
    click.option(
        "--after-completion", is_flag=True, default=None, help="Count the interval from the end of the last job."
    ),
    click.option("--cron", metavar="EXPR", help="Tick when this says so: 5 fields, 6 with seconds first, or @daily."),
    click.option(
        "--timezone", metavar="ZONE", help="Zone the cron is meant in, such as Europe/Berlin.  [default: UTC]"
    ),
    click.option("--start", "start_at", type=instant, metavar="TIME", help="No tick before this time (ISO 8601)."),
    click.option("--end", "end_at", type=instant, metavar="TIME", help="No tick after this time."),
    click.option("--jitter", type=span, metavar="SPAN", help="Spread starts by up to this much."),
)
JOBS = (
    click.option("--queue", help="Queue to put its jobs in.  [default: the type's own]"),
    click.option("--priority", type=click.IntRange(0, 9), help="9 goes first.  [default: the type's own]"),
    click.option("--timeout", type=span, metavar="SPAN", help="Stop an attempt after this long."),
    click.option(
        "--retry",
        type=click.Choice([kind.value for kind in RetryKind]),
        help="How attempts that error are tried again.",
    ),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Mark its jobs; may be repeated."),
)
POLICIES = (
    click.option(
        "--overlap",
        type=click.Choice([choice.value for choice in Overlap]),
        help="What a tick does while an earlier job has not ended.  [default: allow]",
    ),
    click.option(
        "--misfire",
        type=click.Choice([choice.value for choice in Misfire]),
        help="What becomes of ticks that were missed.  [default: run_once]",
    ),
    click.option(
        "--misfire-grace", type=span, metavar="SPAN", help="A tick this late is not yet missed.  [default: 1m]"
    ),
    click.option(
        "--misfire-cap", type=click.IntRange(1, 10_000), metavar="N", help="Most missed ticks to run.  [default: 100]"
    ),
)


def when(function: F) -> F:
    """--interval, --cron and what belongs to them."""
    return _with(WHEN, function)


def all_terms(function: F) -> F:
    """Everything that may be said about a schedule."""
    return _with((*WHEN, *JOBS, *POLICIES), function)


def said(given: dict[str, Any]) -> dict[str, Any]:
    """Only the options that were given."""
    return {name: value for name, value in given.items() if value not in (None, ())}


def _with(options: tuple[Callable[[F], F], ...], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function
