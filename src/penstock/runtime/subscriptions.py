"""Subscriptions of the settings: a server makes them what their tables say when it starts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from penstock.config.tables import SubscriptionTable
from penstock.engine import Engine
from penstock.events.sinks import connect_sinks
from penstock.model.clock import seconds
from penstock.model.errors import Invalid, InvalidSetting, Unavailable, UnresolvedHost
from penstock.model.subscriptions import DeliveryLimits, sink_of
from penstock.model.wire.subscriptions import FilterRequest, SubscriptionRequest

logger = logging.getLogger("penstock.server")

RETRY_EVERY = seconds(5)


@asynccontextmanager
async def declare_subscriptions(engine: Engine, environ: Mapping[str, str]) -> AsyncIterator[None]:
    """Make the subscriptions of the settings what their tables say. While the store does not answer, in background.

    InvalidSetting names a table whose URL may not be used, or whose secret is not there.
    """
    requests = [await _check(engine, name, table, environ) for name, table in engine.settings.subscriptions.items()]
    if await _try_declare(engine, requests):
        yield
        return
    trying = asyncio.ensure_future(_try_until_declared(engine, requests))
    try:
        yield
    finally:
        trying.cancel()


def request_of(name: str, table: SubscriptionTable, environ: Mapping[str, str]) -> SubscriptionRequest:
    """What a table asks for. InvalidSetting if the variable of its secret is not set."""
    variable = table.secret_env
    if variable is not None and not environ.get(variable):
        raise InvalidSetting(f"[subscriptions.{name}]: secret_env: the variable {variable} is not set")
    return SubscriptionRequest(
        name=name,
        sink=sink_of(table.url),
        filter=FilterRequest(types=table.types, queues=table.queues, states=table.states, tags=table.tags),
        include=table.include,
        batch=table.batch,
        limits=DeliveryLimits(in_flight=table.in_flight, per_second=table.per_second),
        secret=None if variable is None else environ[variable],
    )


async def _check(
    engine: Engine, name: str, table: SubscriptionTable, environ: Mapping[str, str]
) -> SubscriptionRequest:
    request = request_of(name, table, environ)
    connect_sinks(engine)
    try:
        await engine.subscriptions.check(request)
    except UnresolvedHost as error:
        # A name server that is away must not keep a server from starting; every connect looks it up again.
        logger.warning("subscription %s: %s", name, error.message)
    except Invalid as error:
        raise InvalidSetting(f"[subscriptions.{name}]: {error.message}") from None
    return request


async def _try_declare(engine: Engine, requests: Sequence[SubscriptionRequest]) -> bool:
    """Whether all could be declared; the log says what hinders."""
    try:
        for request in requests:
            await engine.subscriptions.declare(request)
    except (Unavailable, Invalid) as error:
        logger.warning("the subscriptions of the settings cannot be declared now: %s", error.message)
        return False
    return True


async def _try_until_declared(engine: Engine, requests: Sequence[SubscriptionRequest]) -> None:
    await engine.clock.sleep(RETRY_EVERY)
    while not await _try_declare(engine, requests):
        await engine.clock.sleep(RETRY_EVERY)
