"""The SDK's connection to a server: `Client` and `AsyncClient`, HTTP only. Importing this imports no HTTP library.

A public name is loaded when it is first asked for: a worker uses the transport only.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client.aio import AsyncClient
    from penstock.client.client import Client
    from penstock.client.handle import JobHandle
    from penstock.client.options import Content, Duration, JobSpec, ScheduleOptions, SubmitOptions

__all__ = ["AsyncClient", "Client", "Content", "Duration", "JobHandle", "JobSpec", "ScheduleOptions", "SubmitOptions"]

_WHERE = {"AsyncClient": "aio", "Client": "client", "JobHandle": "handle"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE.get(name, 'options')}"), name)
