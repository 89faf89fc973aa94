"""Imports the app in an executor or a prefork process, and explains why it cannot be imported."""

import importlib
import os
import sys
import traceback
from typing import Any

import msgspec

from penstock.app import Penstock
from penstock.model.text import readable
from penstock.worker.protocol import Loaded, LoadFailed, Program

UNLOADABLE = 2
"""The exit status of an executor whose app cannot be imported."""


def load_or_explain(reference: str) -> Penstock | LoadFailed:
    """Import the app, also from the current folder; or the reason why it cannot be imported."""
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - a string is what sys.path holds
    try:
        app = load(reference)
        # The reason must be encodable to reach the agent.
        msgspec.msgpack.encode(describe_app(app))
    except BaseException as error:  # noqa: BLE001 - importing runs user code, which may raise anything
        return LoadFailed(readable(f"{type(error).__name__}: {readable(error)}"), readable(_where(error)))
    return app


def load(reference: str) -> Penstock:
    """The app that `module:name` refers to; name is `app` unless given."""
    module, _, name = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in (name or "app").split("."):
        found = getattr(found, part)
    if not isinstance(found, Penstock):
        raise TypeError(f"{reference} is a {type(found).__name__}, not a penstock.Penstock")
    return found


def describe_app(app: Penstock) -> Loaded:
    """The types, programs and schedules of an imported app, for the agent."""
    programs = {
        name: Program(one.command.argv, dict(one.command.env))
        for name, one in app.handlers.items()
        if one.command is not None
    }
    schedules = tuple(map(msgspec.json.encode, app.schedules.values()))
    return Loaded(tuple(one.declared for one in app.handlers.values()), programs, schedules)


def _where(error: BaseException) -> str:
    """The user's part of the traceback; empty if the app was not found."""
    machinery = (__file__, "<frozen importlib", importlib.__file__ or "")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(machinery)]
    if not frames and not isinstance(error, SyntaxError):
        return ""
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)])
