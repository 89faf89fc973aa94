"""`penstock jobs`: everything a client can do with jobs."""

import time
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import first_items, instant, page_size, print_json, span
from penstock.cli.job_format import (
    print_ended,
    print_job,
    print_jobs,
    print_line,
    print_submitted,
    size,
    state_and_reason,
)
from penstock.cli.job_params import params_schema, read_params, split_pair
from penstock.model.clock import SystemClock
from penstock.model.errors import NotFound
from penstock.model.lifecycle import State
from penstock.model.retry import RetryKind
from penstock.model.wire.jobs import FileItem, JobItem

if TYPE_CHECKING:
    pass


jobs = CommandGroup(
    name="jobs",
    help="Submit jobs, look at them, and stop them.",
    examples=("penstock jobs submit thumbnail url=cat.png --wait", "penstock jobs list --state failed"),
    lazy={
        "submit": ("penstock.cli.jobs:submit", "Submit a job; with --wait, print its result."),
        "list": ("penstock.cli.jobs:list_jobs", "List jobs, newest first."),
        "show": ("penstock.cli.jobs:show", "Show everything about jobs."),
        "watch": ("penstock.cli.watch:watch", "Follow jobs until they end."),
        "logs": ("penstock.cli.jobs:logs", "Print what a job wrote."),
        "output": ("penstock.cli.jobs:output", "Download an output file of a job."),
        "cancel": ("penstock.cli.jobs:cancel", "Cancel jobs."),
        "retry": ("penstock.cli.jobs:retry", "Submit ended jobs again, as new jobs."),
    },
)


@command(
    "submit",
    "penstock jobs submit thumbnail url=cat.png width=64 --wait",
    """penstock jobs submit report '{"month": "2026-11"}' --delay 1h --tag monthly --key report-2026-11""",
    "penstock jobs submit convert --input photo=cat.png",
)
@click.argument("type_name", metavar="TYPE")
@click.argument("words", metavar="[PARAMS]...", nargs=-1)
@click.option("-p", "pairs", multiple=True, metavar="KEY=VALUE", help="One of the params; the same as KEY=VALUE alone.")
@click.option("--queue", help="Queue to put it in.  [default: the type's own]")
@click.option("--priority", type=click.IntRange(0, 9), help="9 goes first.  [default: the type's own]")
@click.option("--delay", type=span, metavar="SPAN", help="Run it after this long, such as 90s or 1h30m.")
@click.option("--at", "scheduled_at", type=instant, metavar="TIME", help="Run it at this time (ISO 8601).")
@click.option("--interval", type=span, metavar="SPAN", help="Run it again and again, this often: makes a schedule.")
@click.option("--timeout", type=span, metavar="SPAN", help="Stop an attempt after this long.")
@click.option(
    "--retry", type=click.Choice([kind.value for kind in RetryKind]), help="How attempts that error are tried again."
)
@click.option("--expires", type=span, metavar="SPAN", help="Give up if it has not started after this long.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Mark it, to find it again; may be repeated.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=PATH", help="File it reads; may be repeated.")
@click.option("--key", help="Idempotency key: the same key gives the same job back.")
@click.option("--wait", is_flag=True, help="Wait until it ends and print its result; exit 1 if it does not succeed.")
@click.option("--wait-for", type=span, metavar="SPAN", help="Wait no longer than this.  [default: for ever]")
@remote
def submit(
    *,
    type_name: str,
    words: tuple[str, ...],
    pairs: tuple[str, ...],
    inputs: tuple[str, ...],
    expires: float | None,
    wait: bool,
    wait_for: float | None,
    server: RemoteServer,
    **given: Any,
) -> int:
    """Submit a job of TYPE. Prints the job's id; with --wait its result.

    PARAMS are written as key=value, where a value that is JSON is taken as such, unless the type wants text there, and
    any other as text; or as a JSON object, as @file with one, or as - for stdin.
    """
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    if "delay" in chosen and "scheduled_at" in chosen:
        raise click.UsageError("--delay and --at exclude each other: give one of them")
    with server.connect() as client:
        params = read_params([*words, *pairs], partial(params_schema, client, type_name))
        job = client.submit(type_name, params, **chosen, inputs=_inputs(inputs), expires_at=_expiry(expires))
        if wait or wait_for is not None:
            ended = client.wait(job.id, timeout=wait_for)
            return print_ended(ended, as_json=server.as_json)
    server.show(job, lambda: print_submitted(job))
    return 0


def _inputs(texts: tuple[str, ...]) -> dict[str, Path]:
    pairs = (split_pair(text, "--input name=path") for text in texts)
    return {name: Path(path) for name, path in pairs}


def _expiry(span: float | None) -> datetime | None:
    return SystemClock().now() + timedelta(seconds=span) if span is not None else None


@command("list", "penstock jobs list --type thumbnail --state failed --limit 50")
@click.option("--type", "type_name", metavar="TYPE", help="Only jobs of this type.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only jobs in this state.")
@click.option("--queue", help="Only jobs in this queue.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Most jobs to list.")
@remote
def list_jobs(
    *,
    type_name: str | None,
    state: str | None,
    queue: str | None,
    tag: str | None,
    limit: int,
    server: RemoteServer,
) -> None:
    """List jobs, newest first."""
    wanted = State(state) if state else None
    with server.connect() as client:
        matching = client.list(type=type_name, state=wanted, queue=queue, tag=tag, page_size=page_size(limit))
        listing = first_items(matching, limit)
    server.show_listing("jobs", listing, print_jobs, "no such jobs; submit one with: penstock jobs submit TYPE")


@command("show", "penstock jobs show 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@remote
def show(*, ids: tuple[str, ...], server: RemoteServer) -> None:
    """Show everything about jobs: state and why, params, result, error, times, files."""
    server.show_each(ids, lambda client, job: client.get(job), lambda _, item: print_job(item))


LOG_POLL_SECONDS = 0.5


@command("logs", "penstock jobs logs --follow 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@remote
def logs(*, id: str, follow: bool, server: RemoteServer) -> None:
    """Print what a job wrote: stdout, stderr and its log records, of all attempts."""
    show = print_json if server.as_json else print_line
    position = 0
    with server.connect() as client:
        while True:
            # The state is read before the lines, so that the last lines of a job that just ended are not missed.
            ended = client.get(id).state.terminal
            page = client.logs(id, after=position)
            for line in page.lines:
                show(line)
            if ended or not follow:
                return
            position = page.position
            time.sleep(LOG_POLL_SECONDS)


@command("output", "penstock jobs output 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55 thumbnail.png -o cat-small.png")
@click.argument("id", metavar="ID")
@click.argument("name", required=False)
@click.option(
    "-o", "--to", type=click.Path(path_type=Path), help="File or folder to write; - for stdout.  [default: .]"
)
@remote
def output(*, id: str, name: str | None, to: Path | None, server: RemoteServer) -> None:
    """Download the output NAME of a job; without NAME, its only one."""
    with server.connect() as client:
        file = _chosen(client.get(id), name)
        if to == Path("-"):
            click.echo(client.output(id, file.name), nl=False)
            return
        path = client.download(id, file.name, to or Path())
    answer = {"name": file.name, "path": str(path), "size": file.size, "digest": file.digest}
    server.say(answer, f"{path} ({size(file.size)})")


def _chosen(item: JobItem, name: str | None) -> FileItem:
    known = ", ".join(file.name for file in item.outputs) or f"none: it is {item.state}"
    wanted = [file for file in item.outputs if name in (None, file.name)]
    if len(wanted) == 1:
        return wanted[0]
    if name is None and wanted:
        raise click.UsageError(f"job {item.id} has several outputs; name one of: {known}")
    raise NotFound(f"job {item.id} has no output{f' {name!r}' if name else ''}; its outputs: {known}")


@command("cancel", "penstock jobs cancel 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="End a running job on the spot instead of asking it to stop.")
@remote
def cancel(*, ids: tuple[str, ...], force: bool, server: RemoteServer) -> None:
    """Cancel jobs: waiting ones at once, running ones by asking them to stop. Ended ones stay as they are."""
    server.for_each(
        ids,
        lambda client, job: client.cancel(job, force=force),
        lambda item: f"{item.id}  {state_and_reason(item)}",
    )


@command("retry", "penstock jobs retry 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@remote
def retry(*, ids: tuple[str, ...], server: RemoteServer) -> None:
    """Submit ended jobs again, as new jobs. Prints the id of each new job."""
    with server.connect() as client:
        for job in ids:
            item = client.retry(job)
            server.show(item, partial(_print_retry, item, job))


def _print_retry(item: JobItem, job: str) -> None:
    click.echo(item.id)
    style.hint(f"{item.state}; it asks for what {job} asked for")
