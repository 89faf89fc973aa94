"""The entry points of the functions, by the names that the template gives to Lambda."""

from functools import cache
from typing import Any

from penstock.functions import routes
from penstock.functions.host import FunctionHost, host_of_environment

Event = dict[str, Any]


@cache
def _host() -> FunctionHost:
    return host_of_environment()


def add(event: Event, context: Any) -> Event:
    """Add jobs, one or a batch."""
    return _host().answer("add", routes.ADD, event, context)


def query(event: Event, context: Any) -> Event:
    """Read jobs, their events, logs and files."""
    return _host().answer("query", routes.QUERY, event, context)


def cancel(event: Event, context: Any) -> Event:
    """Cancel jobs."""
    return _host().answer("cancel", routes.CANCEL, event, context)


def rest(event: Event, context: Any) -> Event:
    """Every other route of the API."""
    return _host().answer("rest", routes.REST, event, context)
