"""`penstock workers`: what each can run, what it runs now, and whether it is there."""

from collections.abc import Sequence

from penstock.cli import style
from penstock.cli.commands import command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.format import ago, print_table
from penstock.model.wire.jobs import WorkerList
from penstock.model.workers import Worker, WorkerState

HEADS = ("WORKER", "STATE", "RUNNING", "CAPACITY", "HOST", "PID", "STARTED", "SEEN", "TYPES")
STATE_STYLES = {WorkerState.READY: style.good, WorkerState.DRAINING: style.warned, WorkerState.LOST: style.bad}
TYPES_SHOWN = 4


@command("workers", "penstock workers --json")
@remote
def workers(*, server: RemoteServer) -> None:
    """List the workers: what they can run, what they run now, and when they were last heard from."""
    found = server.ask(lambda client: client.workers())
    server.show_list(WorkerList(found), found, _print, "no workers; start one with: penstock worker module:app")


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
