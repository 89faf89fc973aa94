"""How the story looks: chapters with what was done and what came of it, and a table at the end."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from penstock.cli import ink
from penstock.cli.demo.stage import DemoStage
from penstock.cli.table import lines
from penstock.model.lifecycle import State

INDENT = "     "
CLEAR_LINE = "\r\033[K"
BAR_WIDTH = 30


@dataclass(frozen=True, slots=True)
class ChapterResult:
    """One line of the table at the end."""

    step: str
    state: State
    attempts: str
    took: str
    note: str = ""


def print_opening(stage: DemoStage) -> None:
    ink.say()
    ink.say(f"{INDENT}{ink.dim('server ')}  {stage.url}, data in {stage.folder} (removed afterwards)")
    ink.say(f"{INDENT}{ink.dim('workers')}  none: they come with the work, and go with it")


def print_chapter(number: int, title: str) -> None:
    ink.say()
    ink.say(f"  {ink.bold(f'{number}  {title}')}")


def print_line(text: str) -> None:
    ink.say(INDENT + text)


def print_live(done: int, of: int, unit: str) -> None:
    """A bar that is drawn over itself; nothing where there is no terminal."""
    if sys.stdout.isatty():
        filled = BAR_WIDTH * done // of
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        click.echo(f"{CLEAR_LINE}{INDENT}{bar} {done:,} of {of:,} {unit}", nl=False)


def print_level(waiting: int, most: int, workers: int) -> None:
    """What waits, as a bar, and a figure for each worker; drawn over itself, nothing where there is no terminal."""
    if sys.stdout.isatty():
        filled = BAR_WIDTH * waiting // max(1, most)
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        click.echo(f"{CLEAR_LINE}{INDENT}{bar} {waiting:>4} waiting   {'●' * workers} {workers} workers", nl=False)


def end_live() -> None:
    if sys.stdout.isatty():
        click.echo(CLEAR_LINE, nl=False)


def print_summary(told: Sequence[ChapterResult], seconds: float) -> None:
    ink.say()
    rows = [(each.step, ink.state(each.state), each.attempts, each.took, each.note) for each in told]
    for line in lines(("WHAT HAPPENED", "STATE", "ATTEMPTS", "TOOK", ""), rows, right=("ATTEMPTS", "TOOK")):
        ink.say(f"  {line}")
    ink.say()
    ink.say(f"  {ink.good('All as told')}, in {seconds:.0f} seconds. Your turn:")
    ink.say()
    ink.say("    penstock up module:app        your own jobs")
    ink.say("    penstock jobs --help          submit, list, watch, cancel, retry")
    ink.say()
