"""ECS for tests: ministack with the containers of Podman, task definitions for workers of this checkout, a registry."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.aws import AwsService
from penstock.client import AsyncClient
from penstock.http1 import Http1Client
from penstock.model.clock import seconds
from penstock.model.errors import FleetUnavailable, NotFound
from servers import Ministack, Podman
from servers.podman import CHECKOUT, IMAGE
from tests.emulators import use_emulator
from tests.servers_fixtures import real_servers

FAMILY = "workers"
FAST_BEATS = {"PENSTOCK_TIMING_LEASE_SECONDS": "4", "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.3"}
TARGET = "x-amz-target"
CALL_SECONDS = 30.0


@contextmanager
def ecs_with_containers() -> Iterator[tuple[Ministack, Podman]]:
    """ministack whose tasks are containers of Podman."""
    with real_servers() as folder, Podman(folder / "podman") as podman:
        (folder / "ministack").mkdir()
        with Ministack(folder / "ministack", engine=podman.url) as ministack:
            yield ministack, podman


@asynccontextmanager
async def ecs_client(patch: pytest.MonkeyPatch, ministack: Ministack) -> AsyncIterator[AwsService]:
    """A client of ECS, and the environment that leads others there."""
    use_emulator(patch, ministack)
    service = await AwsService.open("ecs", error=FleetUnavailable, deadline=seconds(CALL_SECONDS))
    try:
        yield service
    finally:
        await service.close()


def worker_definition(app: str, folder: Path, environ: Mapping[str, str], family: str = FAMILY) -> dict[str, Any]:
    """A task definition of a worker that runs with the programs of this machine, which no Fargate task could have."""
    binds = [bind.split(":")[0] for bind in Podman.binds()]
    names = {path: f"v{number}" for number, path in enumerate([*binds, str(folder)])}
    surroundings = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(CHECKOUT),
        "FLEET_APP_FOLDER": str(folder),
        "PENSTOCK_WORKER_EXECUTORS": "1",
        "PENSTOCK_WORKER_GRACE_SECONDS": "0.5",
        **environ,
    }
    mounts = [
        {"sourceVolume": name, "containerPath": path, "readOnly": path != str(folder)} for path, name in names.items()
    ]
    container = {
        "name": "worker",
        "image": IMAGE,
        "command": ["penstock", "worker", app],
        "environment": [{"name": name, "value": value} for name, value in surroundings.items()],
        "mountPoints": mounts,
    }
    return {
        "family": family,
        "networkMode": "host",
        "containerDefinitions": [container],
        "volumes": [{"name": name, "host": {"sourcePath": path}} for path, name in names.items()],
    }


class RemoteRegistry:
    """A server's registry, asked over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        return [name for name in names if await self._ask(name, patience)]

    async def _ask(self, name: str, patience: timedelta | None) -> bool:
        try:
            await self._client.drain_worker(name, patience)
        except NotFound:
            return False
        return True


class EcsFront:
    """Stands before ministack and keeps the promise of client tokens, which it lacks: no RunTask starts tasks twice.

    `lose` answers of RunTask get lost after the tasks were started. With `short_of` one task less is started than was
    asked for, for that reason. `calls` are the actions that were asked for.
    """

    def __init__(self, endpoint: str) -> None:
        self._behind = Http1Client(endpoint)
        self._known: dict[str, bytes] = {}
        self.lose = 0
        self.short_of = ""
        self.calls: list[str] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            await self._behind.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head, headers, body = await read_request(reader)
            status, answer = await self._pass_on(head.split()[1], headers, body)
            if headers[TARGET].endswith(".RunTask") and self.lose:
                self.lose -= 1
                return
            writer.write(response(status, answer, "application/x-amz-json-1.1"))
            await writer.drain()
        finally:
            writer.close()

    async def _pass_on(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        action = headers[TARGET].rpartition(".")[2]
        self.calls.append(action)
        token = json.loads(body).get("clientToken", "") if action == "RunTask" else ""
        if token in self._known:
            return 200, self._known[token]
        passed = {name: value for name, value in headers.items() if name not in {"host", "content-length"}}
        if action == "RunTask" and self.short_of:
            return 200, await self._run_fewer(path, passed, json.loads(body))
        reply = await self._behind.call("POST", path, body, passed, CALL_SECONDS)
        if token and reply.good:
            self._known[token] = reply.body
        return reply.status, reply.body

    async def _run_fewer(self, path: str, headers: Mapping[str, str], asked: dict[str, Any]) -> bytes:
        fewer = json.dumps({**asked, "count": asked["count"] - 1}).encode()
        reply = await self._behind.call("POST", path, fewer, headers, CALL_SECONDS)
        return json.dumps({**json.loads(reply.body), "failures": [{"reason": self.short_of}]}).encode()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """The first line, the headers and the body of a request."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first, headers, await reader.readexactly(int(headers.get("content-length", "0")))


def response(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    """An answer after which the connection ends."""
    head = f"HTTP/1.1 {status} OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\nconnection: close"
    return f"{head}\r\n\r\n".encode() + body


def point_to(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Let clients that are opened from now on use this endpoint."""
    assert "AWS_ENDPOINT_URL" in os.environ, "an emulator is in use"
    patch.setenv("AWS_ENDPOINT_URL", endpoint)


async def metadata_of(endpoint: str, token: str) -> str:
    """The ARN of the task whose metadata ministack gives under this token; empty if it has gone."""
    client = Http1Client(endpoint)
    try:
        reply = await client.call("GET", f"/v4/{token}/task", b"", {}, CALL_SECONDS)
    finally:
        await client.close()
    return str(json.loads(reply.body)["TaskARN"]) if reply.good else ""
