"""`penstock jobs watch`"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.ending import REFUSED
from penstock.cli.jobs.face import note
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.model.lifecycle import State
from penstock.model.wire import JobItem

if TYPE_CHECKING:
    from penstock.client import Client

POLL_SECONDS = 0.25
BAR_WIDTH = 24
CLEAR_LINE = "\r\033[K"


@command("watch", "penstock jobs watch 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.remote
def watch(*, ids: tuple[str, ...], url: str | None, config: Path | None, as_json: bool) -> int:
    """Follow jobs until they end: a line for each change of state, and on a terminal a bar for their progress.

    Exits 1 if any of them did not succeed.
    """
    show = Follower(as_json=as_json)
    with connected(url, config) as client:
        ended = [follow(client, job, show) for job in ids]
    return 0 if all(item.state is State.SUCCEEDED for item in ended) else REFUSED


def follow(client: "Client", job: str, show: "Follower") -> JobItem:
    """Look at a job until it has ended, and show what changes."""
    while True:
        item = client.get(job)
        show.see(item)
        if item.state.terminal:
            return item
        time.sleep(POLL_SECONDS)


class Follower:
    """Shows a job's changes: a line per state and attempt, and between them a bar if there is a terminal."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._bars = sys.stdout.isatty() and not as_json
        self._last: tuple[object, ...] = ()

    def see(self, item: JobItem) -> None:
        key = (item.id, item.state, item.attempt, item.reason)
        if key != self._last:
            self._last = key
            self._change(item)
        if self._bars and item.state is State.RUNNING:
            click.echo(f"{CLEAR_LINE}{bar(item)}", nl=False)

    def _change(self, item: JobItem) -> None:
        if self._as_json:
            print_json(item)
            return
        if self._bars:
            click.echo(CLEAR_LINE, nl=False)
        attempt = f" (attempt {item.attempt} of {item.max_attempts})" if item.attempt else ""
        said = "" if item.state is State.RUNNING else note(item)
        ink.say(f"{ink.dim(item.id)}  {ink.state(item.state)}{attempt}" + (f"  {said}" if said else ""))


def bar(item: JobItem) -> str:
    """The progress of a running job in one line."""
    fraction = item.progress.fraction if item.progress else 0.0
    filled = round(fraction * BAR_WIDTH)
    message = f"  {item.progress.message}" if item.progress and item.progress.message else ""
    return f"  {'█' * filled}{'░' * (BAR_WIDTH - filled)} {fraction:>4.0%}{message}"
