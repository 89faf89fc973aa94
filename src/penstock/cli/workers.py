"""`penstock workers`: what each can run, what it runs now, and whether it is there."""

from collections.abc import Sequence

import click

from penstock.cli import style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import ago, print_table, span
from penstock.model.wire.jobs import WorkerList
from penstock.model.workers import Worker, WorkerState

HEADS = ("WORKER", "STATE", "RUNNING", "CAPACITY", "HOST", "PID", "STARTED", "SEEN", "TYPES")
STATE_STYLES = {WorkerState.READY: style.good, WorkerState.DRAINING: style.warned, WorkerState.LOST: style.bad}
TYPES_SHOWN = 4


workers = CommandGroup(
    name="workers",
    help="List the workers and how they are; let some end.",
    examples=("penstock workers", "penstock workers drain build-7-12-af03 --patience 10m"),
    lazy={
        "list": ("penstock.cli.workers:list_workers", "List the workers and how they are."),
        "drain": ("penstock.cli.workers:drain", "Let workers finish their jobs and end."),
    },
    default="list",
)


@command("list", "penstock workers list --json")
@remote
def list_workers(*, server: RemoteServer) -> None:
    """List the workers: what they can run, what they run now, and when they were last heard from."""
    found = server.ask(lambda client: client.workers())
    server.show_list(WorkerList(found), found, _print, "no workers; start one with: penstock worker module:app")


@command("drain", "penstock workers drain build-7-12-af03", "penstock workers drain build-7-12-af03 --patience 10m")
@click.argument("names", metavar="WORKER...", nargs=-1, required=True)
@click.option("--patience", type=span, metavar="SPAN", help="After this long, give back jobs that have not ended.")
@remote
def drain(*, names: tuple[str, ...], patience: float | None, server: RemoteServer) -> None:
    """Let workers claim no more jobs, finish those they have, and end.

    They learn of it with their next heartbeat. Without --patience a job may take as long as it takes; asked again with
    less patience, a worker hurries. An autoscaler may start others in their place.
    """
    server.for_each(
        names,
        lambda client, name: client.drain_worker(name, patience),
        lambda worker: f"worker {worker.id} is asked to drain; it runs {worker.running} jobs",
    )


def _print(found: Sequence[Worker]) -> None:
    print_table(HEADS, [_row(worker) for worker in found], right=("RUNNING", "CAPACITY", "PID", "STARTED", "SEEN"))


def _row(worker: Worker) -> tuple[str, ...]:
    return (
        worker.id,
        STATE_STYLES[worker.state](worker.state),
        str(worker.running),
        str(worker.capacity),
        worker.host,
        str(worker.pid),
        ago(worker.started_at),
        ago(worker.seen_at),
        _names(worker.types),
    )


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:TYPES_SHOWN])
    return shown + (f" and {len(names) - TYPES_SHOWN} more" if len(names) > TYPES_SHOWN else "")
