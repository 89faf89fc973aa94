"""`penstock schedules`: recurring jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import options, schedule_terms, style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import connected
from penstock.cli.format import instant
from penstock.cli.job_params import params_schema, read_params
from penstock.cli.jobs import print_ended
from penstock.cli.json_output import print_json
from penstock.cli.schedule_format import (
    last_results,
    local_times,
    next_tick,
    print_schedule,
    print_schedules,
    print_ticks,
    result_of,
)
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
        "list": ("penstock.cli.schedules:page", "List schedules with their next and last ticks."),
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


@command(
    "create",
    'penstock schedules create nightly report month=latest --cron "0 2 * * *" --timezone Europe/Berlin',
    "penstock schedules create poll fetch url=https://example.com --interval 90s --overlap skip",
    "penstock schedules create poll fetch --interval 2m --on-conflict replace",
)
@click.argument("name", metavar="NAME")
@click.argument("type_name", metavar="TYPE")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@schedule_terms.all_terms
@click.option("--paused", is_flag=True, default=None, help="Create it paused; let it go with `schedules resume`.")
@click.option(
    "--on-conflict",
    type=click.Choice([choice.value for choice in OnConflict]),
    default=OnConflict.RAISE.value,
    show_default=True,
    help="What to do if there is one of this name.",
)
@options.remote
def create(
    *,
    name: str,
    type_name: str,
    words: tuple[str, ...],
    on_conflict: str,
    url: str | None,
    config: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Create a schedule that runs jobs of TYPE, on an --interval or by --cron.

    PARAMS are written as for `penstock jobs submit`. A schedule that is replaced by the same one is left untouched.
    """
    with connected(url, config) as client:
        made = client.schedule(
            name,
            type_name,
            read_params(words, partial(params_schema, client, type_name)),
            on_conflict=OnConflict(on_conflict),
            **schedule_terms.said(given),
        )
    if as_json:
        print_json(made)
    else:
        style.say(f"{made.name} (version {made.version}): {next_tick(made)}")


PAGE = 500


@command("list", "penstock schedules list --limit 50")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most schedules to list.")
@options.remote
def page(*, limit: int, url: str | None, config: Path | None, as_json: bool) -> None:
    """List schedules by name: when they tick, their next tick, and what became of the last."""
    with connected(url, config) as client:
        found = list(islice(client.schedules(page_size=min(limit + 1, PAGE)), limit + 1))
        listed, more = found[:limit], len(found) > limit
        results = {} if as_json else last_results(client, listed)
    if as_json:
        print_json({"schedules": listed, "more": more})
    elif listed:
        print_schedules(listed, results)
    else:
        style.say("no schedules; make one with: penstock schedules create NAME TYPE --interval 1h", err=True)
    if more and not as_json:
        style.hint(f"there are more than {limit}: see them with --limit")


@command("show", "penstock schedules show nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def show(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Show everything about schedules: when they tick, what they run, their policies and their last tick."""
    with connected(url, config) as client:
        for number, name in enumerate(names):
            item = client.get_schedule(name)
            if as_json:
                print_json(item)
                continue
            if number:
                style.say()
            print_schedule(item, last_results(client, [item]).get(name, ""))


@command(
    "update",
    'penstock schedules update nightly --cron "30 2 * * *"',
    "penstock schedules update poll url=https://example.org --overlap skip",
)
@click.argument("name", metavar="NAME")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@click.option("--type", metavar="TYPE", help="Run jobs of this type.")
@schedule_terms.all_terms
@options.remote
def update(
    *, name: str, words: tuple[str, ...], url: str | None, config: Path | None, as_json: bool, **given: Any
) -> None:
    """Change a schedule. What is not named stays as it is; PARAMS, if any are given, replace all of its params."""
    changes = schedule_terms.said(given)
    if not changes and not words:
        raise click.UsageError("nothing to change: name at least one option or param")
    with connected(url, config) as client:
        if words:
            changes["params"] = read_params(words, lambda: params_schema(client, _type_of(client, name, changes)))
        changed = client.update_schedule(name, **changes)
    if as_json:
        print_json(changed)
    else:
        style.say(f"{changed.name} (version {changed.version}): {next_tick(changed)}")


def _type_of(client: "Client", name: str, changes: Mapping[str, Any]) -> str:
    return str(changes.get("type") or client.get_schedule(name).type)


@command("pause", "penstock schedules pause nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def pause(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let no more ticks of a schedule come. Those that pass meanwhile are missed."""
    with connected(url, config) as client:
        for name in names:
            item = client.pause_schedule(name)
            if as_json:
                print_json(item)
            else:
                style.say(f"{item.name} is paused; go on with: penstock schedules resume {item.name}")


@command("resume", "penstock schedules resume nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def resume(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Let ticks of a paused schedule come again. About those that were missed its misfire policy decides."""
    with connected(url, config) as client:
        for name in names:
            item = client.resume_schedule(name)
            if as_json:
                print_json(item)
            else:
                style.say(f"{item.name}: {next_tick(item)}")


@command("trigger", "penstock schedules trigger nightly --wait")
@click.argument("name", metavar="NAME")
@click.option("--wait", is_flag=True, help="Wait until it ends and print its result; exit 1 if it does not succeed.")
@options.remote
def trigger(*, name: str, wait: bool, url: str | None, config: Path | None, as_json: bool) -> int:
    """Run a schedule's job now, besides its ticks. Prints the job's id; with --wait its result."""
    with connected(url, config) as client:
        job = client.trigger(name)
        if wait:
            return print_ended(client.wait(job.id, timeout=None), as_json=as_json)
    if as_json:
        print_json(job)
    else:
        click.echo(job.id)
        style.hint(f"{job.state}; follow it with: penstock jobs watch {job.id}")
    return 0


@command(
    "preview",
    "penstock schedules preview nightly --count 5",
    'penstock schedules preview --cron "0 2 * * *" --timezone Europe/Berlin',
)
@click.argument("name", metavar="[NAME]", required=False)
@schedule_terms.when
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many ticks.")
@options.remote
def preview(*, name: str | None, count: int, url: str | None, config: Path | None, as_json: bool, **given: Any) -> None:
    """Tell the next ticks: of the schedule NAME, or of what --cron or --interval would do. Nothing is stored."""
    when = schedule_terms.said(given)
    if bool(name) == bool(when):
        raise click.UsageError("give the NAME of a schedule, or --cron or --interval to try one out")
    with connected(url, config) as client:
        if name:
            zone, ticks = client.get_schedule(name).timezone, client.preview(name, count)
        else:
            zone, ticks = when.get("timezone"), client.preview_of(count, **when)
    _print(ticks, zone, as_json=as_json)


def _print(ticks: Sequence[datetime], zone: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"ticks": ticks})
    for line in local_times(ticks, zone) if not as_json else ():
        style.say(line)
    if not ticks and not as_json:
        style.say("no tick to come", err=True)


@command("backfill", "penstock schedules backfill nightly --from 2026-11-01T00:00Z --to 2026-11-08T00:00Z")
@click.argument("name", metavar="NAME")
@click.option("--from", "from_at", type=instant, required=True, metavar="TIME", help="From this time on (ISO 8601).")
@click.option("--to", "to_at", type=instant, required=True, metavar="TIME", help="Up to this time; both are included.")
@options.remote
def backfill(
    *, name: str, from_at: datetime, to_at: datetime, url: str | None, config: Path | None, as_json: bool
) -> None:
    """Run past ticks of a schedule that have neither a job nor a record. Repeating it runs nothing twice."""
    with connected(url, config) as client:
        filled = client.backfill(name, from_at, to_at)
    if as_json:
        print_json({"ticks": filled})
    elif filled:
        style.say(f"{len(filled)} ticks got a job; see them with: penstock schedules history {name}")
    else:
        style.say("no tick of that span was without a job", err=True)


@command("history", "penstock schedules history nightly --limit 50")
@click.argument("name", metavar="NAME")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most ticks to list.")
@options.remote
def history(*, name: str, limit: int, url: str | None, config: Path | None, as_json: bool) -> None:
    """List ticks, newest first: the job each became and its state, or why it was skipped."""
    with connected(url, config) as client:
        found = list(islice(client.ticks(name, page_size=min(limit + 1, PAGE)), limit + 1))
        listed, more = found[:limit], len(found) > limit
        results = [] if as_json else [result_of(client, tick) for tick in listed]
    if as_json:
        print_json({"ticks": listed, "more": more})
    elif listed:
        print_ticks(listed, results)
    else:
        style.say(f"{name} has not ticked yet; see what comes with: penstock schedules preview {name}", err=True)
    if more and not as_json:
        style.hint(f"there are more than {limit}: see them with --limit")


@command("delete", "penstock schedules delete nightly")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@options.remote
def delete(*, names: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> None:
    """Delete schedules and the history of their ticks; the jobs they made stay."""
    with connected(url, config) as client:
        for name in names:
            client.delete_schedule(name)
            if as_json:
                print_json({"deleted": name})
            else:
                style.say(f"{name} is deleted; its jobs stay")
