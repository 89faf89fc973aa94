"""A stand-in for the agent of ECS: it keeps which tasks are protected, by the path that leads each to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.ecs import read_request, response

WITHIN = 30.0
STATE = "/task-protection/v1/state"


class StandInAgent:
    """`puts` are the bodies that tasks have sent, with the name in their path. `refuse` answers as ECS does then.

    While `held` is not set, answers are put off.
    """

    def __init__(self) -> None:
        self.url = ""
        self.puts: list[tuple[str, dict[str, Any]]] = []
        self.refuse = ""
        self.status = 200
        self.held = asyncio.Event()
        self.held.set()
        self._news = asyncio.Condition()

    def uri(self, name: str) -> str:
        """What ECS_AGENT_URI is for the task of this name."""
        return f"{self.url}/api/{name}"

    def protected(self) -> set[str]:
        """The tasks that are protected now; expiries are not watched."""
        return {name for name, put in dict(self.puts).items() if put["ProtectionEnabled"]}

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["StandInAgent"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def until(self, what: str, check: Callable[[], object]) -> None:
        """Return once it is true, looked at with each put."""
        try:
            async with asyncio.timeout(WITHIN), self._news:
                await self._news.wait_for(check)
        except TimeoutError:
            raise AssertionError(f"{what}: not within {WITHIN:g} s; puts: {self.puts}") from None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first, _, body = await read_request(reader)
            method, path, _ = first.split()
            assert (method, path.endswith(STATE)) == ("PUT", True), first
            async with self._news:
                self.puts.append((path.removesuffix(STATE).rpartition("/")[2], json.loads(body)))
                self._news.notify_all()
            await self.held.wait()
            answer = {"failure": {"Reason": self.refuse}} if self.refuse else {"protection": json.loads(body)}
            writer.write(response(self.status, json.dumps(answer).encode()))
            await writer.drain()
        finally:
            writer.close()
