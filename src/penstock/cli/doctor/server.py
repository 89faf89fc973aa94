"""The server: whether it answers, is Penstock, takes jobs, has workers and delivers events."""

import socket
from collections.abc import AsyncIterator

import msgspec

from penstock import __version__
from penstock.cli.connection import fetch
from penstock.cli.doctor.findings import Finding, fail, ok, warn
from penstock.cli.doctor.subscriptions import examine_subscriptions
from penstock.config import ServerSettings, Settings
from penstock.model.errors import ServerUnavailable
from penstock.model.wire.jobs import Health, Problem, WorkerList
from penstock.model.workers import WorkerState


async def examine_server(settings: Settings) -> list[Finding]:
    """What answers at the server's URL; if nothing does, whether one could start."""
    url = settings.worker.url
    try:
        _, body = await fetch(url, "/healthz")
    except ServerUnavailable as absent:
        return [warn("server", absent.message, "start one with: penstock up module:app"), examine_port(settings.server)]
    try:
        health = msgspec.json.decode(body, type=Health)
    except msgspec.MsgspecError:
        return [fail("server", f"what answers at {url} is not Penstock", "name another with --url or PENSTOCK_URL")]
    return [_version(url, health), *[finding async for finding in _check_ready(url, settings.worker.key)]]


def _version(url: str, health: Health) -> Finding:
    if health.version != __version__:
        found = f"{url} runs version {health.version}, this is {__version__}"
        return warn("server", found, "run the same version on both sides")
    return ok("server", f"{url} answers, version {health.version}")


async def _check_ready(url: str, key: str) -> AsyncIterator[Finding]:
    status, body = await fetch(url, "/readyz", key)
    if status == 200:
        yield ok("ready", "takes jobs")
    else:
        problem = msgspec.json.decode(body, type=Problem)
        yield fail("ready", f"takes no jobs now: {problem.detail}", "see the server's log")
    status, body = await fetch(url, "/v1/workers", key)
    if status in {401, 403}:
        problem = msgspec.json.decode(body, type=Problem)
        yield fail("api key", problem.detail, "set PENSTOCK_KEY to a key with the scope jobs:read")
    else:
        yield _workers(msgspec.json.decode(body, type=WorkerList))
        async for finding in examine_subscriptions(url, key):
            yield finding


def _workers(found: WorkerList) -> Finding:
    ready = [worker for worker in found.workers if worker.state is WorkerState.READY]
    if not ready:
        return warn("workers", "none is ready: jobs will wait", "start one with: penstock worker module:app")
    room = sum(worker.capacity for worker in ready)
    running = sum(worker.running for worker in ready)
    return ok("workers", f"{len(ready)} ready, {running} of {room} places taken")


def examine_port(server: ServerSettings) -> Finding:
    """Whether a server could listen where the settings say."""
    where = f"{server.host}:{server.port}"
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((server.host, server.port))
        except OSError as error:
            return fail("port", f"cannot listen on {where}: {error.strerror}", "choose another with --port")
    return ok("port", f"{where} is free")
