"""The entry points of the functions, by the names that the template gives to Lambda."""

import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.engine import Engine
from penstock.functions import routes
from penstock.functions.host import FunctionHost, host_of_environment

if TYPE_CHECKING:
    from penstock.functions.sweep import Sweep, SweepReport

Event = dict[str, Any]


@cache
def process_host() -> FunctionHost:
    """The host that all invocations of this process share."""
    return host_of_environment()


def prepare(environ: Mapping[str, str]) -> None:
    """Get ready while Lambda starts the process, with more CPU than an invocation has: open the engine.

    Not where the process is kept as a snapshot: connections do not outlive it.
    """
    if "AWS_LAMBDA_FUNCTION_NAME" in environ and environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") != "snap-start":
        process_host().open_early()


def add(event: Event, context: Any) -> Event:
    """Add jobs, one or a batch."""
    return process_host().answer("add", routes.ADD, event, context)


def query(event: Event, context: Any) -> Event:
    """Read jobs, their events, logs and files."""
    return process_host().answer("query", routes.QUERY, event, context)


def cancel(event: Event, context: Any) -> Event:
    """Cancel jobs."""
    return process_host().answer("cancel", routes.CANCEL, event, context)


def rest(event: Event, context: Any) -> Event:
    """Every other route of the API."""
    return process_host().answer("rest", routes.REST, event, context)


def sweep(event: Event, context: Any) -> Event:
    """Give every service its step: dispatch, reap, tick, number, scale, tell metrics, deliver. The event only wakes."""
    return sweep_on(process_host(), context)


def publish(event: Event, context: Any) -> Event:
    """Deliver events to sinks. The event only wakes; a batch of the stream without jobs does not even that."""
    return publish_on(process_host(), event, context)


def sweep_on(host: FunctionHost, context: Any) -> Event:
    """A sweep by this host. Raises SweepFailed after all steps had their turn, if one failed."""
    from penstock.functions.budget import budget_of

    async def run(engine: Engine) -> "SweepReport":
        return await _sweep_of(host, engine).run(budget_of(context, engine.clock))

    return answer_of(host.run(run))


def publish_on(host: FunctionHost, event: Event, context: Any) -> Event:
    """Deliveries by this host; `ignored` where the event says that there is nothing to deliver."""
    from penstock.functions.budget import budget_of
    from penstock.functions.deliveries import is_about_jobs

    if not is_about_jobs(event):
        return {"ignored": True}

    async def run(engine: Engine) -> "SweepReport":
        return await _sweep_of(host, engine).deliver(budget_of(context, engine.clock))

    return answer_of(host.run(run))


def _sweep_of(host: FunctionHost, engine: Engine) -> "Sweep":
    from penstock.functions.scaling import make_scaling
    from penstock.functions.sweep import Sweep

    return host.keep(Sweep, lambda: Sweep(engine, host.wake_ups, make_scaling(engine)))


def answer_of(report: "SweepReport") -> Event:
    """The report as JSON; SweepFailed, with it in the message, if a step failed."""
    from penstock.functions.sweep import SweepFailed

    if report.failed:
        raise SweepFailed(msgspec.json.encode(report).decode())
    answer: Event = msgspec.to_builtins(report)
    return answer


prepare(os.environ)
