"""`penstock jobs logs`"""

import time
from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.model.job import LogLine

LOG_POLL_SECONDS = 0.5
LOUD = frozenset({"stderr", "warning", "error", "critical"})


@command("logs", "penstock jobs logs --follow 0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55")
@click.argument("id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@options.remote
def logs(*, id: str, follow: bool, url: str | None, config: Path | None, as_json: bool) -> None:
    """Print what a job wrote: stdout, stderr and its log records, of all attempts."""
    show = print_json if as_json else _print_line
    position = 0
    with connected(url, config) as client:
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


def _print_line(line: LogLine) -> None:
    text = ink.warned(line.text) if line.stream.lower() in LOUD else line.text
    ink.say(f"{ink.dim(f'{line.at.astimezone():%H:%M:%S} {line.attempt} {line.stream:<7}')} {text}")
