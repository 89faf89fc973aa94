"""How commands end: one line on stderr, an exit code, never a traceback."""

import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from penstock.cli import ROOT
from penstock.cli.exit_codes import exit_code
from penstock.model.errors import Conflict, ServerUnavailable


def ended(capsys: pytest.CaptureFixture[str], run: Callable[[], object], **environ: str) -> tuple[int, str]:
    code = exit_code(run, environ)
    return code, capsys.readouterr().err


def raising(error: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


def typed(*words: str) -> Callable[[], object]:
    return lambda: ROOT.main(words, prog_name="penstock", standalone_mode=False)


@pytest.mark.parametrize("error", [Conflict("the job has ended"), ServerUnavailable("no answer from there")])
def test_what_is_refused_or_unavailable_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    assert ended(capsys, raising(error)) == (1, f"penstock: {error}\n")


def test_an_unexpected_error_says_how_to_see_more(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(capsys, raising(ZeroDivisionError("by zero")))
    assert code == 1
    assert "PENSTOCK_DEBUG=1" in said
    assert len(said.splitlines()) == 1


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code(raising(ZeroDivisionError()), {"PENSTOCK_DEBUG": "1"})


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.exceptions.Abort()])
def test_an_interrupt_is_silent_and_130(capsys: pytest.CaptureFixture[str], error: BaseException) -> None:
    assert ended(capsys, raising(error)) == (130, "")


def test_what_a_command_returns_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, lambda: 1) == (1, "")
    assert ended(capsys, lambda: None) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["jbos"], "no such command: jbos; did you mean jobs? (see: penstock --help)"),
        (["jobs", "lits"], "no such command: lits; did you mean list? (see: penstock jobs --help)"),
        (["jobs", "submit"], "missing argument 'TYPE' (see: penstock jobs submit --help)"),
        (["jobs", "submit", "x", "--delay", "soon"], "'soon' is not a span of time"),
        (["jobs", "submit", "x", "--at", "noon"], "'noon' is not a time"),
        (["jobs", "submit", "x", "{"], "params are not a JSON object"),
        (["jobs", "submit", "x", "-p", "novalue"], "write key=value"),
        (["jobs", "submit", "x", "--delay", "1s", "--at", "2030-01-01"], "--delay and --at exclude each other"),
        (["jobs", "list", "--state", "lost"], "'lost' is not one of"),
        (["up", "--port", "99999"], "99999 is not in the range"),
        (["bench", "--parts", "drian"], "no such part: drian"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    code, said = ended(capsys, typed(*words))
    assert code == 2
    assert expected in said
    assert len(said.splitlines()) == 1


def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(typed("jobs"), {}) == 0
    assert "submit" in capsys.readouterr().out


def test_an_absent_server_is_told_at_once_with_what_to_do() -> None:
    command = [sys.executable, "-m", "penstock", "jobs", "list", "--url", "http://127.0.0.1:9"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr.startswith("penstock: no answer from http://127.0.0.1:9")
    assert "penstock up" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_closed_pipe_ends_quietly() -> None:
    shell = f"{sys.executable} -m penstock --help | true"
    answer = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=False, timeout=20)
    assert answer.stderr == ""
