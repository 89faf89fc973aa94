"""A worker whose handlers say anything at all: every job ends at once and can be read, and the server never fails."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api import create_app
from penstock.broker.memory import MemoryBroker
from penstock.config import Settings, WorkerSettings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.objects.folder import FolderObjects
from penstock.store import Store
from penstock.store.sqlite import SqliteStore
from penstock.worker.agent.agent import Agent
from penstock.worker.http_api import HttpWorkerApi
from tests.postgres import new_store
from tests.services.running_worker import APP, handlers_in

SOON = 5.0
ENDED = {"succeeded", "failed"}
WAYS = (
    "raise", "class", "print", "log", "progress", "return", "key", "output", "content type", "content type by hand",
)  # fmt: skip

Act = tuple[str, list[int]]
CODES = st.one_of(
    st.integers(0, 0x1F),
    st.integers(0x20, 0x7F),
    st.integers(0xD800, 0xDFFF),
    st.sampled_from([0x00, 0x0A, 0x25, 0x2F, 0x85, 0x2028, 0xFFFD, 0xFFFE, 0x1F600, 0x10FFFF]),
    st.integers(0, 0x10FFFF),
)
ACTS = st.lists(st.tuples(st.sampled_from(WAYS), st.lists(CODES, max_size=12)), min_size=1, max_size=10)
ALL_WAYS: list[Act] = [(way, [0xDCE9, 0x25, 0x64]) for way in WAYS]


class Watched:
    """An app, and what it answered that it never should."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.faults: list[tuple[str, int]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 500:
                self.faults.append((scope["path"], message["status"]))
            await send(message)

        await self._app(scope, receive, sent)


class Place:
    """A server and a worker beside it."""

    def __init__(self, client: httpx2.AsyncClient, watched: Watched) -> None:
        self._client = client
        self._watched = watched

    async def play(self, acts: list[Act]) -> None:
        """Let handlers do these things, among others that do nothing of the kind."""
        bad: list[dict[str, object]] = [
            {"type": "misbehave", "params": {"how": how, "codes": codes}} for how, codes in acts
        ]
        good: list[dict[str, object]] = [{"type": "add", "params": {"a": number}} for number in range(3)]
        jobs = await self._submit([*bad, *good])
        async with asyncio.timeout(SOON):
            ended = await asyncio.gather(*map(self._end, jobs))
        assert [one["result"] for one in ended[len(bad) :]] == [1, 2, 3]
        for job in jobs:
            assert (await self._client.get(f"/v1/jobs/{job}/logs")).status_code == 200
        assert (await self._client.get("/v1/jobs", params={"limit": len(ended)})).status_code == 200
        assert self._watched.faults == []

    async def _submit(self, jobs: list[dict[str, object]]) -> list[str]:
        answer = await self._client.post("/v1/jobs/batch", json={"jobs": jobs})
        assert answer.json()["accepted"] == len(jobs), answer.text
        return [str(one["id"]) for one in answer.json()["jobs"]]

    async def _end(self, job: str) -> dict[str, object]:
        answer = await self._client.get(f"/v1/jobs/{job}", params={"wait": 2 * SOON}, timeout=2 * SOON)
        item: dict[str, object] = answer.json()
        assert item["state"] in ENDED, item
        return item


@asynccontextmanager
async def a_store(kind: str, folder: Path) -> AsyncIterator[Store]:
    if kind == "sqlite":
        yield await SqliteStore.open(folder / "penstock.db", clock=SystemClock())
    else:
        async with new_store(18, SystemClock()) as store:
            yield store


@asynccontextmanager
async def a_server(app: ASGIApp) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_keep_alive=60))
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@asynccontextmanager
async def a_worker(agent: Agent) -> AsyncIterator[None]:
    await agent.start()
    running = asyncio.ensure_future(agent.run())
    try:
        yield
    finally:
        agent.drain()
        await running


@asynccontextmanager
async def a_place(store_kind: str, folder: Path, *, direct: bool) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(a_store(store_kind, folder))
        clock = SystemClock()
        told = Settings(worker=WorkerSettings(executors=1, capacity=32, grace_seconds=0.5))
        engine = Engine(store, MemoryBroker(), FolderObjects(folder / "objects", clock), told, clock, random.Random(7))
        stack.push_async_callback(engine.close)
        watched = Watched(create_app(engine))
        url = await stack.enter_async_context(a_server(watched))
        worker_api = HttpWorkerApi(url)
        stack.push_async_callback(worker_api.close)
        stack.enter_context(handlers_in(folder))
        await stack.enter_async_context(a_worker(Agent(APP, engine.worker_api if direct else worker_api, told, clock)))
        yield Place(await stack.enter_async_context(httpx2.AsyncClient(base_url=url)), watched)


@pytest.mark.slow
@pytest.mark.parametrize(("store_kind", "direct"), [("sqlite", False), ("postgres", True)])
async def test_whatever_handlers_say_all_jobs_end_soon_and_can_be_read(
    tmp_path: Path, store_kind: str, direct: bool
) -> None:
    async with a_place(store_kind, tmp_path, direct=direct) as place:
        loop = asyncio.get_running_loop()

        @settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
        @given(ACTS)
        @example(ALL_WAYS)
        def play(acts: list[Act]) -> None:
            asyncio.run_coroutine_threadsafe(place.play(acts), loop).result()

        await asyncio.to_thread(play)
