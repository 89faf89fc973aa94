"""`penstock types`: the job types that workers declare, their aliases and their end."""

from collections.abc import Sequence
from datetime import timedelta

import click
from msgspec.structs import replace

from penstock.cli import style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import lasted, print_table
from penstock.model.retry import Retry
from penstock.model.wire.types import RetiredType, TypeItem, TypeList
from penstock.model.workers import JobType

types = CommandGroup(
    name="types",
    help="Look at job types, rename and retire them.",
    examples=(
        "penstock types list",
        "penstock types alias thumbnail make_thumbnail",
        "penstock types retire thumbnail",
    ),
    lazy={
        "list": ("penstock.cli.types:list_types", "List the job types that workers have declared."),
        "alias": ("penstock.cli.types:alias", "Let jobs of one type be run as another, after a rename."),
        "retire": ("penstock.cli.types:retire", "Accept no more jobs of a type; see or cancel what is left."),
    },
    default="list",
)


HEADS = ("TYPE", "QUEUE", "RUNS AS", "RETRY", "TIMEOUT", "PARAMS", "ABOUT")


@command("list", "penstock types list --json")
@remote
def list_types(*, server: RemoteServer) -> None:
    """List the job types that workers have declared, with their defaults and params."""
    found = server.ask(lambda client: client.types())
    empty = "no job types yet: start a worker with: penstock worker module:app"
    server.show_list(TypeList(found), found, _print, empty)


def _print(found: Sequence[TypeItem]) -> None:
    print_table(HEADS, [_row(declared) for declared in found], right=("TIMEOUT",))


def _row(declared: TypeItem) -> tuple[str, ...]:
    limit = declared.timeout_seconds
    timeout = lasted(timedelta(seconds=limit)) if limit is not None else "none"
    about = _alias_note(declared) or (declared.description or "").partition("\n")[0]
    return (declared.name, declared.queue, declared.kind, _retry(declared.retry), timeout, _params(declared), about)


def _alias_note(declared: TypeItem) -> str:
    if declared.run_as is not None:
        return f"run as {declared.run_as}"
    return f"runs {', '.join(declared.aliases)} too" if declared.aliases else ""


def _retry(retry: Retry) -> str:
    return f"{retry.kind} × {retry.max_attempts}" if retry.max_attempts > 1 else "none"


def _params(declared: JobType) -> str:
    """The names of the params; those that may be left out in brackets."""
    if declared.params_schema is None:
        return "any"
    needed = declared.params_schema.get("required", ())
    names = declared.params_schema.get("properties", {})
    return " ".join(name if name in needed else f"[{name}]" for name in names) or "none"


@command("alias", "penstock types alias thumbnail make_thumbnail", "penstock types alias thumbnail --remove")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="[NEW]", required=False)
@click.option("--remove", is_flag=True, help="Let OLD be run by its own handler again.")
@remote
def alias(*, old: str, new: str | None, remove: bool, server: RemoteServer) -> None:
    """Let jobs and submits of the type OLD be run as NEW, which workers have declared: after a handler was renamed."""
    if (new is None) != remove:
        raise click.UsageError("give the type that OLD is run as, or --remove")
    if new is None:
        server.ask(lambda client: client.remove_type_alias(old))
        style.say(f"{old} is run as itself again")
        return
    item = server.ask(lambda client: client.alias_type(old, new))
    server.say(item, f"{old} is run as {item.name}; undo it with: penstock types alias {old} --remove")


@command("retire", "penstock types retire thumbnail", "penstock types retire thumbnail --cancel")
@click.argument("name", metavar="TYPE")
@click.option("--cancel", is_flag=True, help="Cancel the jobs that wait; running ones go on.")
@remote
def retire(*, name: str, cancel: bool, server: RemoteServer) -> None:
    """Accept no more jobs of a type, and tell how many are left. Code that is deployed later may declare it again."""
    with server.connect() as client:
        retired = client.retire_type(name, cancel=cancel)
        while cancel and (more := client.retire_type(name, cancel=True)).cancelled:
            retired = replace(more, cancelled=retired.cancelled + more.cancelled)
    server.show(retired, lambda: _print_retired(retired, cancel=cancel))


def _print_retired(retired: RetiredType, *, cancel: bool) -> None:
    left = ", ".join(f"{count:,} {state}" for state, count in retired.jobs.items()) or "none"
    style.say(
        f"{retired.name} is retired; jobs left: {left}" + (f"; cancelled: {retired.cancelled:,}" if cancel else "")
    )
    if retired.jobs and not cancel:
        style.say(f"see them with: penstock jobs list --type {retired.name}; cancel them with: --cancel")
