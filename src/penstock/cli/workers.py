"""`penstock workers`"""

from pathlib import Path

from penstock.cli import options, style
from penstock.cli.commands import command
from penstock.cli.connection import connected
from penstock.cli.format import ago, print_table
from penstock.cli.json_output import print_json
from penstock.model.wire.jobs import WorkerList
from penstock.model.workers import Worker, WorkerState

HEADS = ("WORKER", "STATE", "RUNNING", "CAPACITY", "HOST", "PID", "STARTED", "SEEN", "TYPES")
INKS = {WorkerState.READY: style.good, WorkerState.DRAINING: style.warned, WorkerState.LOST: style.bad}
TYPES_SHOWN = 4


@command("workers", "penstock workers --json")
@options.remote
def workers(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """List the workers: what they can run, what they run now, and when they were last heard from."""
    with connected(url, config) as client:
        found = client.workers()
    if as_json:
        print_json(WorkerList(found))
    elif found:
        print_table(HEADS, [_row(worker) for worker in found], right=("RUNNING", "CAPACITY", "PID", "STARTED", "SEEN"))
    else:
        style.say("no workers; start one with: penstock worker module:app", err=True)


def _row(worker: Worker) -> tuple[str, ...]:
    return (
        worker.id,
        INKS[worker.state](worker.state),
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
