"""The help: every command has one, with an example, and printing it loads nothing heavy."""

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from penstock.cli import ROOT
from penstock.cli.commands import CliCommand, CommandGroup

HEAVY = ("apsw", "asyncio", "httpx2", "msgspec", "starlette", "uvicorn", "penstock.engine", "penstock.runtime")


def every_command(
    group: CommandGroup = ROOT, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield (*path, name), found
        if isinstance(found, CommandGroup):
            yield from every_command(found, (*path, name))


COMMANDS = dict(every_command())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_a_help_with_an_example_of_itself(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(ROOT, [*path, "--help"], prog_name="penstock")
    assert shown.exit_code == 0
    examples = shown.output.partition("\nExample")[2]
    assert f"penstock {' '.join(path)}" in examples


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_of_every_example_exists(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert isinstance(command, CliCommand | CommandGroup)
    known = {flag for other in COMMANDS.values() for option in other.params for flag in option.opts}
    for example in command.examples:
        assert {word for word in example.split() if word.startswith("--")} <= known


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_commands_line_in_the_list_begins_like_its_own_help(path: tuple[str, ...]) -> None:
    group = COMMANDS[path[:-1]] if path[1:] else ROOT
    assert isinstance(group, CommandGroup)
    line, told = group.lazy[path[-1]][1], COMMANDS[path].help or ""
    assert line.split()[0].strip(":;") == told.split()[0].strip(":;")


def test_the_help_loads_nothing_heavy() -> None:
    ask = f"""
import sys
from penstock.cli import ROOT
ROOT.main(["--help"], standalone_mode=False)
print("LOADED", *[name for name in {HEAVY!r} if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "LOADED"


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("penstock jo", ["jobs"]),
        ("penstock jobs su", ["submit"]),
        ("penstock queues ", ["list", "pause", "resume"]),
        ("penstock jobs submit --prio", ["--priority"]),
        ("penstock nonsense x", []),
    ],
)
def test_a_shell_completes_commands_and_options(line: str, completions: list[str]) -> None:
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_PENSTOCK_COMPLETE": "bash_complete"}
    command, environ = [sys.executable, "-m", "penstock"], {**os.environ, **asked}
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert (told.returncode, told.stderr) == (0, "")
    assert [one.partition(",")[2] for one in told.stdout.split()] == completions


def test_a_terminal_without_our_characters_ends_no_command() -> None:
    say = """
import click
from penstock.cli import ROOT, main, style
say = click.command()(lambda: style.say("zero → many"))
ROOT.lazy = {"say": ("__main__:say", "Say it.")}
main(["say"])
"""
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    told = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=False, env=environ)
    assert (told.returncode, told.stdout, told.stderr) == (0, "zero \\u2192 many\n", "")


@pytest.mark.parametrize("words", [["--version"], ["version"]])
def test_the_version_is_told(words: list[str]) -> None:
    from penstock import __version__

    shown = CliRunner().invoke(ROOT, words, prog_name="penstock")
    assert shown.output.startswith(f"penstock {__version__}")
