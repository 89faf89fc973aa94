"""`penstock jobs watch`: follows jobs on their streams, with a bar for their progress and what they write."""

import sys
import time
from typing import TYPE_CHECKING

import click

from penstock.cli import style
from penstock.cli.commands import command
from penstock.cli.connection import RemoteServer, remote
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import print_json
from penstock.cli.job_format import note, print_line
from penstock.model.errors import Conflict
from penstock.model.job import LogLine, Progress
from penstock.model.lifecycle import State
from penstock.model.wire.events import ProgressItem
from penstock.model.wire.jobs import JobItem

if TYPE_CHECKING:
    from penstock.client import Client

POLL_SECONDS = 0.25
BAR_WIDTH = 24
CLEAR_LINE = "\r\033[K"


@command("watch", "penstock jobs watch 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@remote
def watch(*, ids: tuple[str, ...], server: RemoteServer) -> int:
    """Follow jobs until they end: a line for each change of state and for what they write, and on a terminal a bar.

    Exits 1 if any of them did not succeed. Ctrl-C ends the watching; the jobs go on.
    """
    show = Follower(as_json=server.as_json)
    with server.connect() as client:
        ended = [follow(client, job, show) for job in ids]
    return 0 if all(item.state is State.SUCCEEDED for item in ended) else REFUSED


def follow(client: "Client", job: str, show: "Follower") -> JobItem:
    """Show what changes about a job until it has ended."""
    item = client.get(job)
    show.see(item)
    try:
        return item if item.state.terminal else _stream(client, job, show)
    except Conflict:
        return _poll(client, job, show)
    finally:
        show.clear()


def _stream(client: "Client", job: str, show: "Follower") -> JobItem:
    for update in client.stream(job):
        match update:
            case ProgressItem():
                show.see_progress(update.progress)
            case LogLine():
                show.see_line(update)
            case _:
                show.see(client.get(job))
    item = client.get(job)
    show.see(item)
    return item


def _poll(client: "Client", job: str, show: "Follower") -> JobItem:
    """Look again and again, at a server that keeps no events."""
    while not (item := client.get(job)).state.terminal:
        show.see(item)
        time.sleep(POLL_SECONDS)
    show.see(item)
    return item


class Follower:
    """Shows a job's changes: a line per state and attempt, and between them a bar if there is a terminal."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._bars = sys.stdout.isatty() and not as_json
        self._bar = ""
        self._last: tuple[object, ...] = ()

    def see(self, item: JobItem) -> None:
        key = (item.id, item.state, item.attempt, item.reason)
        if key != self._last:
            self._last = key
            self._change(item)
        self._bar = bar(item.progress) if item.state is State.RUNNING else ""
        self._draw()

    def see_progress(self, progress: Progress) -> None:
        self._bar = bar(progress)
        self._draw()

    def see_line(self, line: LogLine) -> None:
        if not self._as_json:
            self.clear()
            print_line(line)
            self._draw()

    def clear(self) -> None:
        """Take the bar off the terminal."""
        if self._bars:
            click.echo(CLEAR_LINE, nl=False)

    def _draw(self) -> None:
        if self._bars and self._bar:
            click.echo(f"{CLEAR_LINE}{self._bar}", nl=False)

    def _change(self, item: JobItem) -> None:
        if self._as_json:
            print_json(item)
            return
        self.clear()
        attempt = f" (attempt {item.attempt} of {item.max_attempts})" if item.attempt else ""
        said = "" if item.state is State.RUNNING else note(item)
        style.say(f"{style.dim(item.id)}  {style.state(item.state)}{attempt}" + (f"  {said}" if said else ""))


def bar(progress: Progress | None) -> str:
    """The progress of a running job in one line."""
    fraction = progress.fraction if progress else 0.0
    filled = round(fraction * BAR_WIDTH)
    message = f"  {progress.message}" if progress and progress.message else ""
    return f"  {'█' * filled}{'░' * (BAR_WIDTH - filled)} {fraction:>4.0%}{message}"
