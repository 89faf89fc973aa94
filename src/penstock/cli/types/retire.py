"""`penstock types retire`"""

from pathlib import Path

import click
from msgspec.structs import replace

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.model.type_wire import RetiredType


@command("retire", "penstock types retire thumbnail", "penstock types retire thumbnail --cancel")
@click.argument("name", metavar="TYPE")
@click.option("--cancel", is_flag=True, help="Cancel the jobs that wait; running ones go on.")
@options.remote
def retire(*, name: str, cancel: bool, url: str | None, config: Path | None, as_json: bool) -> None:
    """Accept no more jobs of a type, and tell how many are left. Code that is deployed later may declare it again."""
    with connected(url, config) as client:
        retired = client.retire_type(name, cancel=cancel)
        while cancel and (more := client.retire_type(name, cancel=True)).cancelled:
            retired = replace(more, cancelled=retired.cancelled + more.cancelled)
    if as_json:
        print_json(retired)
    else:
        _tell(retired, cancel=cancel)


def _tell(retired: RetiredType, *, cancel: bool) -> None:
    left = ", ".join(f"{count:,} {state}" for state, count in retired.jobs.items()) or "none"
    ink.say(f"{retired.name} is retired; jobs left: {left}" + (f"; cancelled: {retired.cancelled:,}" if cancel else ""))
    if retired.jobs and not cancel:
        ink.say(f"see them with: penstock jobs list --type {retired.name}; cancel them with: --cancel")
