"""How an ended job is told: its result to stdout, everything else to stderr, success as the exit code."""

import click
import msgspec

from penstock.cli import ink
from penstock.cli.ending import REFUSED
from penstock.cli.jobs.face import note, took
from penstock.cli.machine import print_json
from penstock.cli.spans import lasted
from penstock.model.lifecycle import State
from penstock.model.wire import JobItem


def print_ended(item: JobItem, *, as_json: bool) -> int:
    """Print a job that has ended; the exit code to end with."""
    succeeded = item.state is State.SUCCEEDED
    if as_json:
        print_json(item)
    elif succeeded:
        click.echo(msgspec.json.encode(item.result))
    ink.say(_summary(item), err=True)
    return 0 if succeeded else REFUSED


def _summary(item: JobItem) -> str:
    attempts = f" at attempt {item.attempt}" if item.attempt > 1 else ""
    span = f" in {lasted(took(item))}" if took(item) is not None else ""
    said = f": {note(item)}" if note(item) else ""
    return f"{item.type} {ink.state(item.state)}{span}{attempts}{said}"
