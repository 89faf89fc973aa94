"""Files that go to and from the object store itself, past a real server over a real S3."""

import asyncio
import hashlib
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import httpx2
import msgspec
import pytest
import uvicorn
from msgspec import Raw
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import AsyncClient
from penstock import Client as BlockingClient
from penstock.api import create_app
from penstock.api.request import BYTES
from penstock.broker.memory import MemoryBroker
from penstock.client.http import TransferBroken, Transfers
from penstock.config import Settings
from penstock.config.settings import ObjectSettings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.model.errors import CorruptObject, ObjectsUnavailable, Unavailable
from penstock.model.job import Claim, ErrorCode, FileLink, Lease, Ticket
from penstock.model.keys import KeyScope
from penstock.model.wire.jobs import Outcome, UploadRequest
from penstock.model.wire.keys import KeyRequest
from penstock.model.workers import JobType, Worker, WorkRequest
from penstock.objects.s3 import S3Objects
from penstock.scheduler.sweeper import Pruner
from penstock.store import Shard
from penstock.store.sqlite import SqliteStore
from penstock.worker.agent.attempt import Attempt
from penstock.worker.agent.files import FileTrouble, fetch_inputs
from penstock.worker.agent.outage import Backoff
from penstock.worker.http_api import FileBody, HttpWorkerApi
from tests.http.api_calls import JOIN, UNKNOWN_JOB, Client, Json, claim, job, problem, settle, submit
from tests.s3 import AgedObjects, access, new_url

LARGE = random.Random(7).randbytes(90_000)
FEW = 20_000
"""More bytes than all the calls of a story hold beside its files, and fewer than any file in it."""
NOWHERE = "http://127.0.0.1:9"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Tapped:
    """An app, and how many bytes of bodies went in and out of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def received() -> Message:
            return self._counted(await receive())

        async def sent(message: Message) -> None:
            await send(self._counted(message))

        await self._app(scope, received, sent)

    def _counted(self, message: Message) -> Message:
        self.bytes += len(message.get("body", b""))
        return message


@pytest.fixture
def objects() -> AgedObjects:
    return AgedObjects(new_url())


@pytest.fixture
async def engine(tmp_path: Path, settings: Settings, objects: AgedObjects) -> AsyncIterator[Engine]:
    async with engine_over(objects, tmp_path, settings) as engine:
        yield engine


@asynccontextmanager
async def engine_over(objects: S3Objects, folder: Path, settings: Settings) -> AsyncIterator[Engine]:
    clock = SystemClock()
    store = await SqliteStore.open(folder / "penstock.db", clock=clock)
    engine = Engine(store, MemoryBroker(), objects, settings, clock, random.Random(7))
    try:
        yield engine
    finally:
        await engine.close()


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """The URL of a real server for the app, in this very loop."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


class Story:
    """A server with S3 behind it, as an SDK and a worker over HTTP see it."""

    def __init__(self, url: str, tapped: Tapped, worker_api: HttpWorkerApi, folder: Path) -> None:
        self.url = url
        self.tapped = tapped
        self.worker_api = worker_api
        self._folder = folder

    async def claim(self) -> Claim:
        wanted = WorkRequest(frozenset({"other"}))
        (claimed,) = await self.worker_api.claim("w1", wanted, 1, timedelta(seconds=30))
        return claimed

    async def write(self, claimed: Claim, content: bytes) -> FileLink:
        path = self._folder / "output.bin"
        path.write_bytes(content)
        lease = Lease(claimed.job, claimed.fence)
        for _ in range(2):
            # As the agent does: an unavailable server is asked again, with the body afresh.
            with suppress(Unavailable):
                link = await self.worker_api.write_output(
                    lease, 0, FileBody(path), "application/x-bin", digest(content)
                )
                return FileLink("output.bin", link)
        raise AssertionError("the second try should have gone through the server")

    async def settle(self, claimed: Claim, *outputs: FileLink) -> None:
        raw = Raw(msgspec.json.encode(None))
        assert not await self.worker_api.settle(
            [Outcome(job=claimed.job, fence=claimed.fence, result=raw, outputs=outputs)]
        )


@asynccontextmanager
async def telling(engine: Engine, folder: Path) -> AsyncIterator[Story]:
    tapped = Tapped(create_app(engine))
    async with serving(tapped) as url:
        worker_api = HttpWorkerApi(url)
        try:
            await worker_api.join(
                msgspec.convert(JOIN["worker"], Worker), msgspec.convert(JOIN["types"], list[JobType])
            )
            yield Story(url, tapped, worker_api, folder)
        finally:
            await worker_api.close()


async def announce(client: Client, content: bytes, **changed: object) -> Json:
    body = {"digest": digest(content), "size": len(content), "content_type": "text/csv", **changed}
    answer = await client.post("/v1/uploads/direct", json=body)
    assert answer.status_code == 201, answer.text
    offer: Json = answer.json()
    return offer


async def send(offer: Json, content: bytes) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.request(offer["method"], offer["url"], content=content, headers=offer["headers"])
        assert answer.status_code == 200, answer.text


# -- the whole way


async def test_files_pass_the_server_by_in_both_directions(engine: Engine, tmp_path: Path) -> None:
    source = tmp_path / "input.bin"
    source.write_bytes(LARGE)
    async with telling(engine, tmp_path) as story, AsyncClient(story.url) as client:
        job = await client.submit("other", inputs={"path.bin": source, "bytes.bin": LARGE[::-1]})
        claimed = await story.claim()
        read = {file.name: await _whole(story.worker_api.read_input(claimed.job, file)) for file in claimed.inputs}
        assert read == {"path.bin": LARGE, "bytes.bin": LARGE[::-1]}
        await story.settle(claimed, await story.write(claimed, LARGE + b"!"))
        assert await client.output(job.id, "output.bin") == LARGE + b"!"
        assert (await client.download(job.id, "output.bin", tmp_path / "back")).read_bytes() == LARGE + b"!"
        assert story.tapped.bytes < FEW
        item = await client.get(job.id)
        assert [(file.size, file.digest) for file in item.outputs] == [(len(LARGE) + 1, digest(LARGE + b"!"))]


async def test_the_blocking_client_goes_the_same_way(engine: Engine, tmp_path: Path) -> None:
    async with telling(engine, tmp_path) as story:
        with BlockingClient(story.url) as client:
            job = await asyncio.to_thread(client.submit, "other", inputs={"a.bin": LARGE})
            claimed = await story.claim()
            await story.settle(claimed, await story.write(claimed, LARGE))
            assert await asyncio.to_thread(client.output, job.id, "output.bin") == LARGE
    assert story.tapped.bytes < FEW


async def test_the_way_past_the_server_can_be_turned_off(
    tmp_path: Path, settings: Settings, objects: AgedObjects
) -> None:
    closed = msgspec.structs.replace(settings, objects=ObjectSettings(direct=False))
    async with (
        engine_over(objects, tmp_path, closed) as engine,
        telling(engine, tmp_path) as story,
        AsyncClient(story.url) as client,
    ):
        job = await client.submit("other", inputs={"a.bin": LARGE})
        claimed = await story.claim()
        assert await _whole(story.worker_api.read_input(claimed.job, claimed.inputs[0])) == LARGE
        await story.settle(claimed, await story.write(claimed, LARGE))
        assert await client.output(job.id, "output.bin") == LARGE
    assert story.tapped.bytes > 4 * len(LARGE)


async def test_a_url_is_good_for_as_long_as_the_settings_say(
    tmp_path: Path, settings: Settings, objects: AgedObjects
) -> None:
    brief = msgspec.structs.replace(settings, objects=ObjectSettings(link_seconds=77))
    async with engine_over(objects, tmp_path, brief) as engine:
        before = engine.clock.now()
        offer = await engine.files.announce_upload(UploadRequest(digest(b""), 0))
        assert offer.url is not None
        assert "X-Amz-Expires=77&" in offer.url
        assert offer.expires_at is not None
        assert before <= offer.expires_at - timedelta(seconds=77) <= engine.clock.now()


async def test_small_files_go_through_the_server(engine: Engine, tmp_path: Path) -> None:
    async with telling(engine, tmp_path) as story, AsyncClient(story.url) as client:
        job = await client.submit("other", inputs={"a.bin": LARGE[:30_000]})
        assert story.tapped.bytes > 30_000
        assert [file.size for file in job.inputs] == [30_000]


async def test_where_the_store_cannot_be_reached_everything_goes_through_the_server(
    tmp_path: Path, settings: Settings
) -> None:
    """Workers and clients see an address where nobody listens; only the server reaches the store."""
    hidden = msgspec.structs.replace(access(), public_endpoint=NOWHERE)
    objects = S3Objects(new_url(), SystemClock(), hidden, timedelta(seconds=30))
    async with (
        engine_over(objects, tmp_path, settings) as engine,
        telling(engine, tmp_path) as story,
        AsyncClient(story.url) as client,
    ):
        job = await client.submit("other", inputs={"a.bin": LARGE})
        claimed = await story.claim()
        assert await _whole(story.worker_api.read_input(claimed.job, claimed.inputs[0])) == LARGE
        await story.settle(claimed, await story.write(claimed, LARGE[::-1]))
        assert await client.output(job.id, "output.bin") == LARGE[::-1]
    assert story.tapped.bytes > 4 * len(LARGE)


async def test_an_output_announced_in_vain_goes_through_the_server(tmp_path: Path, settings: Settings) -> None:
    """Its record is there already when the bytes come the other way."""
    hidden = msgspec.structs.replace(access(), public_endpoint=NOWHERE)
    objects = S3Objects(new_url(), SystemClock(), hidden, timedelta(seconds=30))
    async with (
        engine_over(objects, tmp_path, settings) as engine,
        telling(engine, tmp_path) as story,
        AsyncClient(story.url) as client,
    ):
        job = await client.submit("other")
        claimed = await story.claim()
        await story.settle(claimed, await story.write(claimed, LARGE))
        assert await client.output(job.id, "output.bin") == LARGE


async def test_a_fetch_that_breaks_off_is_finished_through_the_server(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaking(self: Transfers, url: str) -> AsyncIterator[bytes]:
        yield LARGE[:50_001]
        raise TransferBroken("gone")

    monkeypatch.setattr(Transfers, "fetch", breaking)
    async with telling(engine, tmp_path) as story, AsyncClient(story.url) as client:
        await client.submit("other", inputs={"a.bin": LARGE})
        claimed = await story.claim()
        assert await _whole(story.worker_api.read_input(claimed.job, claimed.inputs[0])) == LARGE


async def test_no_api_key_reaches_the_object_store(tmp_path: Path, settings: Settings) -> None:
    heads: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(len(LARGE))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(listen, "127.0.0.1", 0)
    seen = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    objects = S3Objects(new_url(), SystemClock(), msgspec.structs.replace(access(), public_endpoint=seen))
    async with (
        listener,
        engine_over(objects, tmp_path, settings) as engine,
        telling(engine, tmp_path) as story,
    ):
        key = (await engine.keys.create(KeyRequest(name="k", scopes=(KeyScope.ADMIN,)))).key
        async with AsyncClient(story.url, key=key) as client:
            await client.upload("a.bin", LARGE)
        with BlockingClient(story.url, key=key) as blocking:
            await asyncio.to_thread(blocking.upload, "a.bin", LARGE)
    assert len(heads) == 2
    for head in heads:
        assert b"content-length: 90000" in head.lower()
        assert b"authorization" not in head.lower()
        assert key.encode() not in head


# -- what counts


async def test_bytes_that_were_announced_otherwise_fail_the_attempt(engine: Engine, tmp_path: Path) -> None:
    async with telling(engine, tmp_path) as story, httpx2.AsyncClient(base_url=story.url) as client:
        for content in (LARGE, b"small"):
            offer = await announce(client, content)
            await send(offer, content[::-1])
            await submit(client, inputs={"a.bin": offer["id"]})
            claimed = await story.claim()
            attempt = Attempt.of(claimed, 0.0, 0.0, str(tmp_path / claimed.job))
            with pytest.raises(FileTrouble) as trouble:
                await fetch_inputs(story.worker_api, attempt, Backoff(None, SystemClock(), random.Random(7)))
            assert trouble.value.error.code == ErrorCode.CORRUPT_INPUT


@pytest.mark.parametrize("sent", [None, b"", b"conten", b"content!"])
async def test_an_upload_of_another_size_cannot_be_linked(client: Client, sent: bytes | None) -> None:
    offer = await announce(client, b"content")
    if sent is not None:
        await send(offer, sent)
    answer = await client.post("/v1/jobs", json={"type": "other", "inputs": {"a": offer["id"]}})
    assert "announced" in problem(answer, 422, "invalid")


async def test_an_upload_is_adopted_as_it_was_when_the_job_was_made(client: Client) -> None:
    """Its URL may be used again for a while; what a job links to is a copy."""
    offer = await announce(client, b"content")
    await send(offer, b"content")
    item = await submit(client, inputs={"a.csv": offer["id"]})
    await send(offer, b"changed")
    assert (await client.get(f"/v1/jobs/{item['id']}/inputs/a.csv")).content == b"content"


async def test_more_than_a_file_may_have_is_refused_when_it_is_announced(client: Client) -> None:
    body = {"digest": digest(b""), "size": 100 * 1024 + 1}
    problem(await client.post("/v1/uploads/direct", json=body), 413, "too_large")


@pytest.mark.parametrize(
    "wrong",
    [
        {"digest": "abc"},
        {"digest": digest(b"") + "\n"},
        {"size": -1},
        {"size": "7"},
        {"content_type": "nonsense"},
        {"content_type": "text/csv\n"},
        {"content_type": "text/csv\r\nx: y"},
        {"more": 1},
    ],
)
async def test_what_cannot_be_announced_is_refused(client: Client, wrong: Json) -> None:
    body = {"digest": digest(b""), "size": 0, **wrong}
    problem(await client.post("/v1/uploads/direct", json=body), 422, "invalid")


# -- downloads


async def test_a_redirect_is_given_only_to_those_who_ask(client: Client) -> None:
    uploaded = (await client.post("/v1/uploads", content=b"a,b", headers={"Content-Type": "text/csv"})).json()
    item = await submit(client, inputs={"a.csv": uploaded["id"]})
    url = f"/v1/jobs/{item['id']}/inputs/a.csv"
    assert (await client.get(url)).content == b"a,b"
    assert (await client.get(url, params={"direct": "false"})).status_code == 200
    assert (await client.head(url, params={"direct": "true"})).status_code == 200
    answer = await client.get(url, params={"direct": "true"})
    assert (answer.status_code, answer.content, answer.headers["cache-control"]) == (307, b"", "no-store")
    async with httpx2.AsyncClient(trust_env=False) as other:
        there = await other.get(answer.headers["location"])
    assert (there.content, there.headers["content-type"]) == (b"a,b", "text/csv")


async def test_a_file_that_is_gone_has_no_redirect(client: Client, engine: Engine) -> None:
    uploaded = (await client.post("/v1/uploads", content=b"x", headers={"Content-Type": BYTES})).json()
    item = await submit(client, inputs={"a": uploaded["id"]})
    await engine.objects.delete(f"jobs/{item['id']}")
    problem(await client.get(f"/v1/jobs/{item['id']}/inputs/a?direct=true"), 404, "not_found")


async def test_a_store_that_is_away_is_a_503(client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise ObjectsUnavailable("s3://bucket gave no answer within 1 s")

    monkeypatch.setattr(engine.objects, "upload_url", away)
    body = {"digest": digest(b""), "size": 0}
    problem(await client.post("/v1/uploads/direct", json=body), 503, "objects_unavailable")


# -- outputs


async def announce_output(client: Client, claimed: Json, content: bytes) -> httpx2.Response:
    url = f"/v1/workers/w1/outputs/{claimed['job']}/{claimed['fence']}/0/direct"
    return await client.post(url, json={"digest": digest(content), "size": len(content), "content_type": "text/plain"})


async def test_an_output_needs_a_lease(client: Client) -> None:
    await submit(client)
    (claimed,) = await claim(client)
    problem(await announce_output(client, {**claimed, "fence": 7}, b"x"), 409, "lease_lost")
    problem(await announce_output(client, {**claimed, "job": UNKNOWN_JOB}, b"x"), 404, "not_found")
    problem(await announce_output(client, {**claimed, "fence": 0}, b"x"), 422, "invalid")
    assert (await announce_output(client, claimed, b"x")).status_code == 201


async def test_an_output_that_did_not_arrive_cannot_be_linked(client: Client) -> None:
    item = await submit(client)
    (claimed,) = await claim(client)
    offer = (await announce_output(client, claimed, b"report")).json()
    await send(offer, b"repor")
    link = {"key": offer["id"], "size": 6, "digest": digest(b"report"), "content_type": "text/plain"}
    await settle(client, claimed, outputs=[{"name": "report.txt", "object": link}])
    ended = await job(client, item["id"])
    assert (ended["state"], ended["error"]["code"]) == ("failed", "invalid_output")


async def test_what_is_sent_for_an_output_after_its_settle_is_noticed_and_not_asked_for(
    client: Client, engine: Engine
) -> None:
    """A URL is good until it expires, and its worker could send other bytes: no reader takes them for the output."""
    item = await submit(client)
    (claimed,) = await claim(client)
    offer = (await announce_output(client, claimed, b"report")).json()
    await send(offer, b"report")
    assert (await settle(client, claimed, outputs=[_linked(offer, b"report")]))["refused"] == []
    problem(await announce_output(client, claimed, b"report"), 409, "lease_lost")
    await send(offer, b"REPORT")
    _, chunks = await engine.files.open_output(item["id"], "report.txt")
    with pytest.raises(CorruptObject):
        [chunk async for chunk in chunks]


async def test_the_output_of_an_attempt_that_lost_is_never_seen_and_swept(
    client: Client, engine: Engine, objects: AgedObjects
) -> None:
    item = await submit(client)
    (lost,) = await claim(client)
    offer = (await announce_output(client, lost, b"old")).json()
    never_sent = await _announce_number(client, lost, 1)
    await client.post("/v1/workers/w1/release", json={"leases": [{"job": lost["job"], "fence": lost["fence"]}]})
    won = await _claim_again(engine, lost)
    await send(offer, b"old")
    kept = (await announce_output(client, won, b"new")).json()
    await send(kept, b"new")
    refused = await settle(client, lost, outputs=[_linked(offer, b"old")])
    assert [one["fence"] for one in refused["refused"]] == [lost["fence"]]
    assert (await settle(client, won, outputs=[_linked(kept, b"new")]))["refused"] == []
    url = f"/v1/jobs/{item['id']}/outputs/report.txt"
    assert (await client.get(url)).content == b"new"
    pruner = Pruner(engine, shard_of(engine))
    assert await pruner.sweep() == 0
    objects.age(timedelta(days=2))
    assert await pruner.sweep() == 2
    assert await objects.stat(offer["id"]) is None
    assert [key async for key in objects.scan("jobs", timedelta())] == [kept["id"]]
    assert never_sent["id"] != kept["id"]
    assert (await client.get(url)).content == b"new"


async def test_an_upload_that_no_job_took_is_swept(client: Client, engine: Engine, objects: AgedObjects) -> None:
    await send(await announce(client, b"content"), b"content")
    await announce(client, b"never sent")
    await client.post("/v1/uploads", content=b"through the server", headers={"Content-Type": BYTES})
    objects.age(timedelta(days=2))
    assert await Pruner(engine, shard_of(engine)).sweep() == 3
    assert [key async for key in objects.scan("", timedelta())] == []


async def _claim_again(engine: Engine, lost: Json) -> Json:
    """The next attempt of a job, as a worker makes it that has a ticket for it."""
    ticket = Ticket(shard_of(engine).shard, lost["job"], "other", "other")
    (claimed,) = await engine.store.claim([ticket], "w1", timedelta(minutes=1))
    return {"job": claimed.job, "fence": claimed.fence}


async def _announce_number(client: Client, claimed: Json, number: int) -> Json:
    url = f"/v1/workers/w1/outputs/{claimed['job']}/{claimed['fence']}/{number}/direct"
    offer: Json = (await client.post(url, json={"digest": digest(b""), "size": 1})).json()
    return offer


def shard_of(engine: Engine) -> Shard:
    assert isinstance(engine.store, SqliteStore)
    return engine.store


def _linked(offer: Json, content: bytes) -> Json:
    link = {"key": offer["id"], "size": len(content), "digest": digest(content), "content_type": "text/plain"}
    return {"name": "report.txt", "object": link}


async def _whole(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])
