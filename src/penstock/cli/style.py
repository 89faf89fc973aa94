"""Colour for people: only on a terminal, never with NO_COLOR or TERM=dumb. State names have one colour each."""

import os
import sys
from typing import IO, Any

import click

from penstock.model.lifecycle import State

COLOURS = {
    State.SCHEDULED: "blue",
    State.QUEUED: "cyan",
    State.RUNNING: "yellow",
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELLED: "magenta",
    State.EXPIRED: "bright_black",
}


def has_colours(stream: IO[Any]) -> bool:
    """True when what is written there may hold colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line for a person; its colours are dropped where they are not wanted."""
    stream = sys.stderr if err else sys.stdout
    click.echo(text, file=stream, color=has_colours(stream))


def hint(text: str) -> None:
    """Tell a person what to do next; say nothing to a script."""
    if sys.stderr.isatty():
        say(dim(text), err=True)


def dim(text: str) -> str:
    return click.style(text, dim=True)


def bold(text: str) -> str:
    return click.style(text, bold=True)


def good(text: str) -> str:
    return click.style(text, fg="green")


def warned(text: str) -> str:
    return click.style(text, fg="yellow")


def bad(text: str) -> str:
    return click.style(text, fg="red")


def state(value: State) -> str:
    return click.style(value.value, fg=COLOURS[value])
