"""How a command ends: errors become one line on stderr and an exit code, never a traceback."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

REFUSED = 1
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


def exit_code(run: Callable[[], Any], environ: Mapping[str, str]) -> int:
    """Run a command and say how it ended. With PENSTOCK_DEBUG set, errors are raised as they are."""
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, click.exceptions.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone: silence the interpreter's own last flush too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except click.UsageError as error:
        return _complain(_usage(error), USAGE)
    except Exception as error:
        if environ.get("PENSTOCK_DEBUG"):
            raise
        return _complain(_message(error), REFUSED)


def _complain(text: str, code: int) -> int:
    click.echo(f"penstock: {text}", err=True)
    return code


def _usage(error: click.UsageError) -> str:
    text = error.format_message().rstrip(".")
    path = error.ctx.command_path if error.ctx else "penstock"
    return f"{text[:1].lower()}{text[1:]} (see: {path} --help)"


def _message(error: Exception) -> str:
    """The message of an error; for an unexpected one that it is a fault of Penstock, and how to see more."""
    from penstock.model.errors import PenstockError

    match error:
        case PenstockError():
            return error.message
        case click.ClickException():
            return error.format_message()
        case OSError() if error.strerror:
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        case _:
            kind = type(error).__name__
            return f"unexpected {kind}: {error}; this is a fault of Penstock: PENSTOCK_DEBUG=1 shows where"
