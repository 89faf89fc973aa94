"""`penstock schedules`: recurring jobs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli import style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import first_items, instant, page_size, span
from penstock.cli.job_format import print_ended, print_submitted
from penstock.cli.job_params import params_schema, read_params
from penstock.cli.schedule_format import (
    last_results,
    local_times,
    next_tick,
    print_schedule,
    print_schedules,
    print_ticks,
    result_of,
)
from penstock.model.retry import RetryKind
from penstock.model.schedule import Misfire, Overlap
from penstock.model.wire.schedules import OnConflict

if TYPE_CHECKING:
    from penstock.client import Client


schedules = CommandGroup(
    name="schedules",
    help="Run jobs again and again: on an interval or by cron.",
    examples=(
        'penstock schedules create nightly report --cron "0 2 * * *" --timezone Europe/Berlin',
        "penstock schedules list",
    ),
    lazy={
        "create": ("penstock.cli.schedules:create", "Create a schedule, or replace one of the same name."),
        "list": ("penstock.cli.schedules:list_schedules", "List schedules with their next and last ticks."),
        "show": ("penstock.cli.schedules:show", "Show everything about schedules."),
        "update": ("penstock.cli.schedules:update", "Change a schedule; what is not named stays as it is."),
        "pause": ("penstock.cli.schedules:pause", "Let no more ticks of a schedule come."),
        "resume": ("penstock.cli.schedules:resume", "Let ticks of a paused schedule come again."),
        "trigger": ("penstock.cli.schedules:trigger", "Run a schedule's job now, besides its ticks."),
        "preview": ("penstock.cli.schedules:preview", "Tell the next ticks, of a schedule or of a cron."),
        "backfill": ("penstock.cli.schedules:backfill", "Run past ticks of a schedule that have no job."),
        "history": ("penstock.cli.schedules:history", "List ticks: their jobs, or why they were skipped."),
        "delete": ("penstock.cli.schedules:delete", "Delete schedules; their jobs stay."),
    },
    default="list",
)


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


def when_options(function: F) -> F:
    """The options that say when a schedule ticks: --interval, --cron and what belongs to them."""
    return _add_options(WHEN, function)


def schedule_options(function: F) -> F:
    """All options that describe a schedule: when it ticks, its jobs and its policies."""
    return _add_options((*WHEN, *JOBS, *POLICIES), function)


def given_options(given: dict[str, Any]) -> dict[str, Any]:
    """Only the options that were given."""
    return {name: value for name, value in given.items() if value not in (None, ())}


def _add_options(options: tuple[Callable[[F], F], ...], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


@command(
    "create",
    'penstock schedules create nightly report month=latest --cron "0 2 * * *" --timezone Europe/Berlin',
    "penstock schedules create poll fetch url=https://example.com --interval 90s --overlap skip",
    "penstock schedules create poll fetch --interval 2m --on-conflict replace",
)
@click.argument("name", metavar="NAME")
@click.argument("type_name", metavar="TYPE")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@schedule_options
@click.option("--paused", is_flag=True, default=None, help="Create it paused; let it go with `schedules resume`.")
@click.option(
    "--on-conflict",
    type=click.Choice([choice.value for choice in OnConflict]),
    default=OnConflict.RAISE.value,
    show_default=True,
    help="What to do if there is one of this name.",
)
@remote
def create(
    *, name: str, type_name: str, words: tuple[str, ...], on_conflict: str, server: RemoteServer, **given: Any
) -> None:
    """Create a schedule that runs jobs of TYPE, on an --interval or by --cron.

    PARAMS are written as for `penstock jobs submit`. A schedule that is replaced by the same one is left untouched.
    """
    with server.connect() as client:
        made = client.schedule(
            name,
            type_name,
            read_params(words, partial(params_schema, client, type_name)),
            on_conflict=OnConflict(on_conflict),
            **given_options(given),
        )
    server.say(made, f"{made.name} (version {made.version}): {next_tick(made)}")


@command("list", "penstock schedules list --limit 50")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most schedules to list.")
@remote
def list_schedules(*, limit: int, server: RemoteServer) -> None:
    """List schedules by name: when they tick, their next tick, and what became of the last."""
    empty = "no schedules; make one with: penstock schedules create NAME TYPE --interval 1h"
    with server.connect() as client:
        listing = first_items(client.schedules(page_size=page_size(limit)), limit)
        server.show_listing(
            "schedules", listing, lambda items: print_schedules(items, last_results(client, items)), empty
        )


@command("show", "penstock schedules show nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@remote
def show(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Show everything about schedules: when they tick, what they run, their policies and their last tick."""
    server.show_each(
        names,
        lambda client, name: client.get_schedule(name),
        lambda client, item: print_schedule(item, last_results(client, [item]).get(item.name, "")),
    )


@command(
    "update",
    'penstock schedules update nightly --cron "30 2 * * *"',
    "penstock schedules update poll url=https://example.org --overlap skip",
)
@click.argument("name", metavar="NAME")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@click.option("--type", metavar="TYPE", help="Run jobs of this type.")
@schedule_options
@remote
def update(*, name: str, words: tuple[str, ...], server: RemoteServer, **given: Any) -> None:
    """Change a schedule. What is not named stays as it is; PARAMS, if any are given, replace all of its params."""
    changes = given_options(given)
    if not changes and not words:
        raise click.UsageError("nothing to change: name at least one option or param")
    with server.connect() as client:
        if words:
            changes["params"] = read_params(words, lambda: params_schema(client, _type_of(client, name, changes)))
        changed = client.update_schedule(name, **changes)
    server.say(changed, f"{changed.name} (version {changed.version}): {next_tick(changed)}")


def _type_of(client: "Client", name: str, changes: Mapping[str, Any]) -> str:
    return str(changes.get("type") or client.get_schedule(name).type)


@command("pause", "penstock schedules pause nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@remote
def pause(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Let no more ticks of a schedule come. Those that pass meanwhile are missed."""
    server.for_each(
        names,
        lambda client, name: client.pause_schedule(name),
        lambda item: f"{item.name} is paused; go on with: penstock schedules resume {item.name}",
    )


@command("resume", "penstock schedules resume nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@remote
def resume(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Let ticks of a paused schedule come again. About those that were missed its misfire policy decides."""
    server.for_each(
        names, lambda client, name: client.resume_schedule(name), lambda item: f"{item.name}: {next_tick(item)}"
    )


@command("trigger", "penstock schedules trigger nightly --wait")
@click.argument("name", metavar="NAME")
@click.option("--wait", is_flag=True, help="Wait until it ends and print its result; exit 1 if it does not succeed.")
@remote
def trigger(*, name: str, wait: bool, server: RemoteServer) -> int:
    """Run a schedule's job now, besides its ticks. Prints the job's id; with --wait its result."""
    with server.connect() as client:
        job = client.trigger(name)
        if wait:
            return print_ended(client.wait(job.id, timeout=None), as_json=server.as_json)
    server.show(job, lambda: print_submitted(job))
    return 0


@command(
    "preview",
    "penstock schedules preview nightly --count 5",
    'penstock schedules preview --cron "0 2 * * *" --timezone Europe/Berlin',
)
@click.argument("name", metavar="[NAME]", required=False)
@when_options
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many ticks.")
@remote
def preview(*, name: str | None, count: int, server: RemoteServer, **given: Any) -> None:
    """Tell the next ticks: of the schedule NAME, or of what --cron or --interval would do. Nothing is stored."""
    when = given_options(given)
    if bool(name) == bool(when):
        raise click.UsageError("give the NAME of a schedule, or --cron or --interval to try one out")
    with server.connect() as client:
        if name:
            zone, ticks = client.get_schedule(name).timezone, client.preview(name, count)
        else:
            zone, ticks = when.get("timezone"), client.preview_of(count, **when)
    server.show_list({"ticks": ticks}, ticks, lambda ticks: _print_times(ticks, zone), "no tick to come")


def _print_times(ticks: Sequence[datetime], zone: str | None) -> None:
    for line in local_times(ticks, zone):
        style.say(line)


@command("backfill", "penstock schedules backfill nightly --from 2026-11-01T00:00Z --to 2026-11-08T00:00Z")
@click.argument("name", metavar="NAME")
@click.option("--from", "from_at", type=instant, required=True, metavar="TIME", help="From this time on (ISO 8601).")
@click.option("--to", "to_at", type=instant, required=True, metavar="TIME", help="Up to this time; both are included.")
@remote
def backfill(*, name: str, from_at: datetime, to_at: datetime, server: RemoteServer) -> None:
    """Run past ticks of a schedule that have neither a job nor a record. Repeating it runs nothing twice."""
    filled = server.ask(lambda client: client.backfill(name, from_at, to_at))
    done = f"{len(filled)} ticks got a job; see them with: penstock schedules history {name}"
    server.show_list({"ticks": filled}, filled, lambda _: style.say(done), "no tick of that span was without a job")


@command("history", "penstock schedules history nightly --limit 50")
@click.argument("name", metavar="NAME")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most ticks to list.")
@remote
def history(*, name: str, limit: int, server: RemoteServer) -> None:
    """List ticks, newest first: the job each became and its state, or why it was skipped."""
    empty = f"{name} has not ticked yet; see what comes with: penstock schedules preview {name}"
    with server.connect() as client:
        listing = first_items(client.ticks(name, page_size=page_size(limit)), limit)
        server.show_listing(
            "ticks", listing, lambda ticks: print_ticks(ticks, [result_of(client, tick) for tick in ticks]), empty
        )


@command("delete", "penstock schedules delete nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@remote
def delete(*, names: tuple[str, ...], server: RemoteServer) -> None:
    """Delete schedules and the history of their ticks; the jobs they made stay."""
    with server.connect() as client:
        for name in names:
            client.delete_schedule(name)
            server.say({"deleted": name}, f"{name} is deleted; its jobs stay")
