"""Penstock: a distributed, autoscaling, asynchronous job queue and scheduler."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.app import Handler, Penstock
    from penstock.client import AsyncClient, Client, JobHandle
    from penstock.context import Cancelled, Context
    from penstock.model.errors import JobEnded, PenstockError, WaitTimeout
    from penstock.model.fleets import Depth, Fleet, KeepWarm, Step, Wait
    from penstock.model.lifecycle import State
    from penstock.model.retry import Retry

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "Context",
    "Depth",
    "Fleet",
    "Handler",
    "JobEnded",
    "JobHandle",
    "KeepWarm",
    "Penstock",
    "PenstockError",
    "Retry",
    "State",
    "Step",
    "Wait",
    "WaitTimeout",
    "__version__",
]

_WHERE = {
    "AsyncClient": "client",
    "Cancelled": "context",
    "Client": "client",
    "Context": "context",
    "Depth": "model.fleets",
    "Fleet": "model.fleets",
    "Handler": "app",
    "JobEnded": "model.errors",
    "JobHandle": "client",
    "KeepWarm": "model.fleets",
    "Penstock": "app",
    "PenstockError": "model.errors",
    "Retry": "model.retry",
    "State": "model.lifecycle",
    "Step": "model.fleets",
    "Wait": "model.fleets",
    "WaitTimeout": "model.errors",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for, so that the command line starts without the SDK."""
    if name not in _WHERE:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"penstock.{_WHERE[name]}"), name)
    return value
