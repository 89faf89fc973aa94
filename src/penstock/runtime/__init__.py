"""The composition root: the only place that starts processes.

A role is loaded when it is first asked for, so that a process imports only what it runs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.backends import open_engine
    from penstock.runtime.roles import scale, schedule
    from penstock.runtime.server import serve, up
    from penstock.runtime.worker import work

__all__ = ["open_engine", "scale", "schedule", "serve", "up", "work"]

_WHERE = {
    "open_engine": "penstock.backends",
    "scale": "penstock.runtime.roles",
    "schedule": "penstock.runtime.roles",
    "serve": "penstock.runtime.server",
    "up": "penstock.runtime.server",
    "work": "penstock.runtime.worker",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
