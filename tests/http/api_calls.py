"""Calls to the HTTP API, shared by its tests."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

import httpx2
from starlette.types import ASGIApp, Message

Client: TypeAlias = httpx2.AsyncClient
Json: TypeAlias = dict[str, Any]

UNKNOWN_JOB = "0190a6e2-0000-7000-8000-000000000000"

WORKER: Json = {
    "id": "w1",
    "host": "here",
    "pid": 1,
    "version": "test",
    "types": ["add", "other"],
    "capacity": 4,
    "started_at": "2026-01-01T00:00:00Z",
}
ADD: Json = {
    "name": "add",
    "queue": "sums",
    "params_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
}
OTHER: Json = {"name": "other", "queue": "other"}
JOIN: Json = {"worker": WORKER, "types": [ADD, OTHER]}


async def submit(client: Client, type: str = "other", **more: object) -> Json:
    answer = await client.post("/v1/jobs", json={"type": type, **more})
    assert answer.status_code == 201, answer.text
    item: Json = answer.json()
    return item


async def claim(client: Client, limit: int = 10, wait: float = 0) -> list[Json]:
    body = {"types": ["add", "other"], "limit": limit, "wait_seconds": wait}
    answer = await client.post("/v1/workers/w1/claim", json=body)
    assert answer.status_code == 200, answer.text
    claims: list[Json] = answer.json()["claims"]
    return claims


async def settle(client: Client, claimed: Json, result: object = None, **more: object) -> Json:
    outcome = {"job": claimed["job"], "fence": claimed["fence"], "result": result, **more}
    answer = await client.post("/v1/workers/w1/settle", json={"outcomes": [outcome]})
    assert answer.status_code == 200, answer.text
    settled: Json = answer.json()
    return settled


async def job(client: Client, id: str) -> Json:
    item: Json = (await client.get(f"/v1/jobs/{id}")).json()
    return item


def problem(answer: httpx2.Response, status: int, code: str) -> str:
    """Check that the answer is that problem; its detail."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    told = answer.json()
    assert (told["status"], told["code"], told["type"]) == (status, code, f"urn:penstock:problem:{code}")
    assert told["title"]
    assert "Traceback" not in answer.text
    detail: str = told["detail"]
    return detail


class RawRequest:
    """One ASGI request made by hand: it may disconnect, announce a wrong length or come in pieces."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        *,
        host: bytes | None = b"localhost",
    ) -> None:
        self._app = app
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.listening = asyncio.Event()
        self.sent: list[Message] = []
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [*([] if host is None else [(b"host", host)]), *headers],
        }

    def says(self, body: bytes, *, more: bool = False) -> "RawRequest":
        self._inbox.put_nowait({"type": "http.request", "body": body, "more_body": more})
        return self

    def hangs_up(self) -> "RawRequest":
        self._inbox.put_nowait({"type": "http.disconnect"})
        return self

    async def run(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    async def _receive(self) -> Message:
        if self._inbox.empty():
            self.listening.set()
        return await self._inbox.get()

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
