"""Penstock: a distributed, autoscaling, asynchronous job queue and scheduler."""

from penstock.app import Handler, Penstock
from penstock.client import AsyncClient, Client, JobHandle
from penstock.context import Cancelled, Context
from penstock.model.errors import JobEnded, PenstockError, WaitTimeout
from penstock.model.lifecycle import State
from penstock.model.retry import Retry

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "Context",
    "Handler",
    "JobEnded",
    "JobHandle",
    "Penstock",
    "PenstockError",
    "Retry",
    "State",
    "WaitTimeout",
    "__version__",
]
