"""An engine with its API, on any store and with Valkey as its broker, and a worker that is asked for by name."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from penstock.api import create_app
from penstock.api.bodies import check_json
from penstock.broker.redis import RedisBroker
from penstock.config import LimitSettings, ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.model.errors import Malformed
from penstock.model.job import Retention
from penstock.model.wire.jobs import JobPage
from penstock.objects.folder import FolderObjects
from penstock.scheduler import Dispatcher
from penstock.store import Store
from servers import Valkey
from tests.http import hostile_values
from tests.http.api_calls import WORKER, Json

T = TypeVar("T")

JOBS = 500
LIMITS = LimitSettings(page_jobs=JOBS, wait_seconds=10)
LISTS = (f"/v1/jobs?limit={JOBS}", f"/v1/schedules?limit={JOBS}", "/v1/queues", "/v1/workers", "/v1/types", "/metrics")


class System:
    """Every request is answered without a failure of the server's, and every job gets to an end."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def open(self, opening: AbstractAsyncContextManager[Store], valkey: Valkey, folder: Path) -> None:
        clock, store = SystemClock(), await self._stack.enter_async_context(opening)
        broker = await RedisBroker.open(valkey.url, clock, folder.name.lower(), deadline=timedelta(seconds=20))
        terms = Settings(server=ServerSettings(allow_unknown_types=True), limits=LIMITS)
        objects = FolderObjects(folder / "objects", clock)
        self.engine = Engine(store, broker, objects, terms, clock, random.Random(7))
        self._stack.push_async_callback(self.engine.close)
        transport = httpx2.ASGITransport(app=create_app(self.engine))
        client = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
        self._client = await self._stack.enter_async_context(client)
        self._upload = (await self.send("POST", "/v1/uploads", b"file"))["id"]

    async def close(self) -> None:
        await self._stack.aclose()

    # -- requests

    async def ask(self, method: str, path: str, body: object = None, key: str | None = None) -> httpx2.Response:
        """An answer that is no failure of the server's."""
        content = body if isinstance(body, bytes) or body is None else hostile_values.body_of(body)
        kind = "application/octet-stream" if path == "/v1/uploads" else "application/json"
        headers = {"Content-Type": kind} | ({} if key is None else {"Idempotency-Key": key})
        answer = await self._client.request(method, path, content=content, headers=headers)
        assert answer.status_code < 500, (method, path, body, answer.text)
        return answer

    async def send(self, method: str, path: str, body: object = None) -> Json:
        """A good answer."""
        answer = await self.ask(method, path, body)
        assert answer.status_code < 300, (method, path, body, answer.text)
        item: Json = answer.json() if answer.content else {}
        return item

    def with_inputs(self, body: Json) -> Json:
        """The body with an upload for each of its inputs."""
        return body | {"inputs": dict.fromkeys(body["inputs"], self._upload)} if "inputs" in body else body

    def can_read(self, body: Json) -> bool:
        """Whether it is JSON to everyone; where one job of a batch is not, there is no batch."""
        try:
            check_json(hostile_values.body_of(body), LIMITS.depth - 2, LIMITS.values)
        except Malformed:
            return False
        return True

    def quoted(self, text: str) -> str:
        return quote(text.encode("utf-8", "surrogatepass"), safe="")

    # -- what must hold

    async def reads(self) -> None:
        """Everything can be listed, and what was listed be read by the SDK."""
        for path in LISTS:
            answer = await self.ask("GET", path)
            assert answer.status_code == 200, (path, answer.text)
            if path.startswith("/v1/jobs"):
                msgspec.json.decode(answer.content, type=JobPage)

    async def work_off(self) -> None:
        """Everything that is due is claimed and settled, and a plain job beside it."""
        await self.reads()
        await self.send("POST", "/v1/jobs", {"type": "plain", "queue": "others"})
        await self.settle_all(await self.claim_all())

    async def claim_all(self) -> list[Json]:
        """The claims of all jobs that are queued, and of some that fall due meanwhile."""
        queued = {job["id"]: job for job in (await self._jobs()) if job["state"] == "queued"}
        types = sorted({job["type"] for job in queued.values()})
        (shard,) = self.engine.store.shards()
        claims: dict[str, Json] = {}
        while queued.keys() - claims.keys():
            await Dispatcher(self.engine, shard).step()
            asked = {"types": types, "limit": JOBS, "wait_seconds": 10}
            more = (await self.send("POST", "/v1/workers/w1/claim", asked))["claims"]
            assert more, [job for id, job in queued.items() if id not in claims]
            claims |= {claim["job"]: claim for claim in more}
        return list(claims.values())

    async def tell(self, claim: Json, outcome: Json, progress: Json | None, line: Json | None) -> None:
        """Whatever a worker says about a job, once."""
        lease = {"job": claim["job"], "fence": claim["fence"]}
        if progress is not None:
            renewal = {"worker": WORKER, "leases": [lease | {"progress": progress}]}
            await self.ask("POST", "/v1/workers/w1/renew", renewal)
        if line is not None:
            await self.ask("POST", "/v1/workers/w1/log", {"entries": [lease | {"lines": [line]}]})
            assert (await self.ask("GET", f"/v1/jobs/{claim['job']}/logs")).status_code == 200
        await self.ask("POST", "/v1/workers/w1/settle", {"outcomes": [lease | outcome]})

    async def settle_all(self, claims: Sequence[Json]) -> None:
        outcomes = [{"job": claim["job"], "fence": claim["fence"], "result": 1} for claim in claims]
        await self.send("POST", "/v1/workers/w1/settle", {"outcomes": outcomes})
        assert not [job for job in await self._jobs() if job["state"] == "running"]

    async def clear(self) -> None:
        """Everything can be cancelled, and then leaves."""
        for schedule in (await self.send("GET", f"/v1/schedules?limit={JOBS}"))["schedules"]:
            await self.send("DELETE", f"/v1/schedules/{schedule['name']}")
        for job in await self._jobs():
            if job["state"] in ("scheduled", "queued"):
                assert (await self.send("POST", f"/v1/jobs/{job['id']}/cancel"))["state"] == "cancelled"
        (shard,) = self.engine.store.shards()
        await shard.prune(Retention(timedelta(0), timedelta(0)), JOBS)
        assert await self._jobs() == []

    async def others_move(self) -> None:
        await self.work_off()
        await self.clear()

    async def _jobs(self) -> list[Json]:
        jobs: list[Json] = (await self.send("GET", f"/v1/jobs?limit={JOBS}"))["jobs"]
        return jobs
