"""The few calls of the Docker API that a fleet needs. Each has a deadline, and FleetUnavailable when it fails."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiodocker
from aiodocker.containers import DockerContainer
from msgspec import Struct

from penstock.model.errors import FleetUnavailable

CALL_WITHIN = timedelta(seconds=20)
PULL_WITHIN = timedelta(minutes=5)
LAST_LINES = 5
LAST_LETTERS = 1000

MISSING = 404
IN_THE_WAY = 409
"""Its state does not allow it: it does not run, it still runs, it is being removed."""

UNREACHABLE = 900
"""What aiodocker calls the status of no answer."""


class ContainerRow(Struct, frozen=True):
    """A container as the engine lists it."""

    id: str
    name: str
    image: str
    state: str
    labels: Mapping[str, str]
    created_at: datetime


class ContainerExit(Struct, frozen=True):
    """How a container ended. `memory_bytes` is its limit, 0 for none; `last_lines` is the end of its output."""

    exit_status: int
    out_of_memory: bool
    memory_bytes: int
    fault: str
    last_lines: str


class ContainerEngine:
    """One engine, at `unix:///…`, `tcp://…` or `ssh://…`. It is connected at the first call."""

    def __init__(self, url: str, within: timedelta = CALL_WITHIN) -> None:
        self._url = url
        self._within = within
        self._docker: aiodocker.Docker | None = None

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerRow]:
        """All that have these labels, also those that have ended."""
        wanted = json.dumps({"label": [f"{label}={value}" for label, value in labels.items()]})
        async with self._ask("list its containers") as docker:
            found = await docker.containers.list(all=True, filters=wanted)
        return [_seen(container) for container in found]

    async def has_image(self, image: str) -> bool:
        present = False
        async with self._ask(f"look for image {image}", fine={MISSING}) as docker:
            await docker.images.inspect(image)
            present = True
        return present

    async def pull(self, image: str) -> None:
        async with self._ask(f"pull image {image}", within=PULL_WITHIN) as docker:
            await docker.images.pull(image)

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """The id of a new container."""
        async with self._ask(f"create container {name}") as docker:
            created = await docker.containers.create(dict(body), name=name)
        return str(created.id)

    async def start(self, container: str) -> None:
        async with self._ask(f"start container {container[:12]}") as docker:
            await docker.containers.container(container).start()

    async def signal(self, container: str, signal: str) -> None:
        """No error if it does not run any more, or not yet."""
        try:
            what = f"send {signal} to container {container[:12]}"
            async with self._ask(what, fine={MISSING, IN_THE_WAY}) as docker:
                await docker.containers.container(container).kill(signal=signal)
        except FleetUnavailable:
            # Some engines answer with another status when it does not run.
            if await self._runs(container):
                raise

    async def _runs(self, container: str) -> bool:
        running = False
        async with self._ask(f"show container {container[:12]}", fine={MISSING}) as docker:
            shown = await docker.containers.container(container).show()
            running = bool(shown["State"]["Running"])
        return running

    async def rename(self, container: str, name: str) -> None:
        """No error if it has gone."""
        async with self._ask(f"rename container {container[:12]} to {name}", fine={MISSING}) as docker:
            await docker.containers.container(container).rename(name)

    async def inspect_exit(self, container: str) -> ContainerExit | None:
        """How it ended; None if it has gone."""
        known = None
        async with self._ask(f"say how container {container[:12]} ended", fine={MISSING}) as docker:
            one = docker.containers.container(container)
            known = _ending(await one.show(), await one.log(stdout=True, stderr=True, tail=LAST_LINES))
        return known

    async def remove(self, container: str) -> None:
        """No error if it has gone, or is going; one that runs is left alone."""
        async with self._ask(f"remove container {container[:12]}", fine={MISSING, IN_THE_WAY}) as docker:
            await docker.containers.container(container).delete(v=True)

    async def close(self) -> None:
        docker, self._docker = self._docker, None
        if docker is not None:
            await docker.close()

    @asynccontextmanager
    async def _ask(
        self, what: str, *, fine: Collection[int] = (), within: timedelta | None = None
    ) -> AsyncIterator[aiodocker.Docker]:
        """The context of one call; a status in `fine` ends it as a success."""
        span = (within or self._within).total_seconds()
        try:
            async with asyncio.timeout(span):
                yield self._reached()
        except TimeoutError:
            raise FleetUnavailable(f"the container engine at {self._url} did not {what} within {span:g} s") from None
        except aiodocker.DockerError as error:
            if error.status not in fine:
                raise self._unavailable(what, error) from None
        except (OSError, ValueError) as error:
            raise FleetUnavailable(f"the container engine at {self._url} could not {what}: {error}") from error

    def _reached(self) -> aiodocker.Docker:
        if self._docker is None:
            self._docker = aiodocker.Docker(self._url)
        return self._docker

    def _unavailable(self, what: str, error: aiodocker.DockerError) -> FleetUnavailable:
        if error.status == UNREACHABLE:
            advice = "check that it runs and that its address is right"
            return FleetUnavailable(f"no container engine answers at {self._url}: {advice} ({error.message})")
        return FleetUnavailable(f"the container engine at {self._url} could not {what}: {error.message}")


def _seen(container: DockerContainer) -> ContainerRow:
    return ContainerRow(
        id=container.id,
        name=container["Names"][0].removeprefix("/"),
        image=container["Image"],
        state=container["State"].lower(),
        labels=container["Labels"],
        created_at=datetime.fromtimestamp(container["Created"], UTC),
    )


def _ending(shown: Mapping[str, Any], output: list[str]) -> ContainerExit:
    state = shown["State"]
    lines = "".join(output)[-LAST_LETTERS:].strip().splitlines()[-LAST_LINES:]
    return ContainerExit(
        exit_status=state["ExitCode"],
        out_of_memory=state.get("OOMKilled", False),
        memory_bytes=shown["HostConfig"].get("Memory", 0),
        fault=state.get("Error") or "",
        last_lines="\n".join(lines),
    )
