"""Commands that files and pages name, held against the command line as it is."""

from collections.abc import Sequence

import click

from penstock.cli import ROOT


def parse(words: Sequence[str]) -> click.Context:
    """What follows `penstock`, parsed and not run. UsageError, or AssertionError for a command that there is not."""
    command: click.Command | None = ROOT
    context = click.Context(ROOT)
    name, rest = "penstock", list(words)
    while isinstance(command, click.Group):
        name, *rest = rest
        command = command.get_command(context, name)
    assert command is not None, f"there is no command {name}"
    return command.make_context(name, rest)
