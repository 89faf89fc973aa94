"""Both clients against a real server on a real socket, with the test itself as the worker."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import uvicorn

from penstock import AsyncClient, Client, Penstock, State
from penstock.api import create_app
from penstock.backends import open_engine
from penstock.config import LimitSettings, ServerSettings, Settings
from penstock.engine import Engine
from penstock.model.errors import (
    Conflict,
    Invalid,
    InvalidParams,
    KeyConflict,
    NotFound,
    TooLarge,
    UnknownType,
    WaitTimeout,
)
from penstock.model.job import Claim, FileLink, Lease, LogLine
from penstock.model.wire.jobs import LogEntry, Outcome
from penstock.model.workers import Worker, WorkRequest
from penstock.scheduler import run_service
from tests.services.engine_steps import dispatcher

T = TypeVar("T")

app = Penstock()


@app.job
def add(a: int, b: int = 0) -> int:
    return a + b


class Server:
    """An engine and its API in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Named TCP, so that asyncio turns Nagle's algorithm off on what it accepts.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._listening.wait(30)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with open_engine(self._settings) as self.engine:
            await self.engine.worker_api.join(_worker(), [add.declared])
            posting = asyncio.ensure_future(
                run_service("dispatcher", dispatcher(self.engine).step, self.engine.tickets.wake.event())
            )
            self._uvicorn = uvicorn.Server(uvicorn.Config(create_app(self.engine), log_config=None, lifespan="off"))
            self._listening.set()
            await self._uvicorn.serve(sockets=[self._socket])
            posting.cancel()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something where the engine lives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join()


def _worker() -> Worker:
    return Worker(
        id="w1", host="h", pid=1, version="0", types=("add",), capacity=1, started_at=datetime(2030, 1, 1, tzinfo=UTC)
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = str(tmp_path_factory.mktemp("data"))
    settings = Settings(server=ServerSettings(data=data), limits=LimitSettings(batch_jobs=50, inline_bytes=1024))
    server = Server(settings)
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


async def _claim(engine: Engine, job: str) -> Claim:
    """Take jobs until this one is among them."""
    wanted = WorkRequest(types=frozenset({"add"}))
    while True:
        for claim in await engine.worker_api.claim("w1", wanted, 100, timedelta(seconds=10)):
            if claim.job == job:
                return claim


async def _finish(engine: Engine, job: str, result: object, output: bytes | None = None) -> None:
    claim = await _claim(engine, job)
    lease = Lease(claim.job, claim.fence)
    outputs: tuple[FileLink, ...] = ()
    if output is not None:
        digest = sha256(output).hexdigest()
        link = await engine.worker_api.write_output(lease, 0, _whole(output), "text/plain", digest)
        outputs = (FileLink("täxt 1.txt", link),)
    line = LogLine(datetime(2030, 1, 1, tzinfo=UTC), "stdout", "hello", 1)
    await engine.worker_api.log([LogEntry(claim.job, claim.fence, (line,) * 3)])
    raw = msgspec.Raw(msgspec.json.encode(result))
    assert not await engine.worker_api.settle([Outcome(job=claim.job, fence=claim.fence, result=raw, outputs=outputs)])


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


def test_a_job_goes_in_and_comes_out_done(server: Server, client: Client) -> None:
    job = client.submit("add", {"a": 1}, priority=7, tags=["x"], timeout=timedelta(seconds=5))
    assert (job.state, job.priority, job.tags, job.timeout_seconds) == (State.QUEUED, 7, ("x",), 5.0)
    server.run(_finish(server.engine, job.id, 1))
    done = client.wait(job.id, timeout=10)
    assert (done.state, done.result) == (State.SUCCEEDED, 1)
    assert client.get(job.id) == done
    assert [line.text for line in client.logs(job.id).lines] == ["hello"] * 3
    assert client.logs(job.id, after=client.logs(job.id).position).lines == ()


def test_an_output_comes_back_whole(server: Server, client: Client, tmp_path: Path) -> None:
    job = client.submit("add", {"a": 1})
    content = bytes(range(256)) * 4096
    server.run(_finish(server.engine, job.id, 1, content))
    assert client.output(job.id, "täxt 1.txt") == content
    path = client.download(job.id, "täxt 1.txt", tmp_path)
    assert (path.name, path.read_bytes()) == ("täxt 1.txt", content)


def test_a_handle_gives_a_result_too_large_for_its_row(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "client", client)
    job = add.submit(1, b=2)
    large = "x" * 5000
    server.run(_finish(server.engine, job.id, large))
    assert job.wait(10).item.result == large
    with pytest.raises(Invalid, match="not what its handler declares"):
        job.result  # noqa: B018


def test_a_key_gives_the_same_job_back_or_refuses_another(client: Client) -> None:
    first = client.submit("add", {"a": 1}, key="order-7")
    assert client.submit("add", {"a": 1}, key="order-7").id == first.id
    with pytest.raises(KeyConflict):
        client.submit("add", {"a": 2}, key="order-7")


def test_what_the_server_refuses_is_raised_as_its_own_error(client: Client) -> None:
    with pytest.raises(UnknownType) as caught:
        client.submit("ad")
    assert caught.value.details["known"] == ("add",)
    with pytest.raises(InvalidParams):
        client.submit("add", {"a": "one"})
    with pytest.raises(NotFound):
        client.get("0190a6e2-0000-7000-8000-000000000000")


def test_many_jobs_go_in_within_the_servers_limit_and_the_refused_are_named(client: Client) -> None:
    answers = client.submit_many({"type": "add", "params": {"a": n if n != 60 else "x"}} for n in range(120))
    assert [one.index for one in answers] == list(range(120))
    refused = [one for one in answers if one.problem is not None]
    assert [(one.index, one.problem and one.problem.code) for one in refused] == [(60, "invalid_params")]
    assert len({one.id for one in answers if one.id}) == 119


def test_a_list_gives_each_job_once(client: Client) -> None:
    made = {client.submit("add", {"a": n}, tags=["listed"]).id for n in range(7)}
    assert sorted(job.id for job in client.list(tag="listed", page_size=3)) == sorted(made)


def test_a_waiting_job_is_cancelled_and_an_ended_one_tried_again(client: Client) -> None:
    job = client.submit("add", {"a": 1}, delay=3600)
    assert job.state is State.SCHEDULED
    with pytest.raises(Conflict):
        client.retry(job.id)
    assert client.cancel(job.id, force=True).state is State.CANCELLED
    assert client.retry(job.id).retry_of == job.id


def test_waiting_ends_in_time(client: Client) -> None:
    job = client.submit("add", {"a": 1}, delay=3600)
    with pytest.raises(WaitTimeout, match="scheduled"):
        client.wait(job.id, timeout=0.3)


def test_inputs_are_uploaded(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    job = client.submit("add", {"a": 1}, inputs={"a.csv": tmp_path / "a.csv", "b": b"bytes"})
    assert [(file.name, file.size, file.content_type) for file in job.inputs] == [
        ("a.csv", 4, "text/csv"),
        ("b", 5, "application/octet-stream"),
    ]


def test_queues_types_workers_and_health_are_told(client: Client) -> None:
    assert client.pause("add").paused
    assert not client.resume("add").paused
    assert [queue.name for queue in client.queues()] == ["add"]
    assert [kind.name for kind in client.types()] == ["add"]
    assert [worker.id for worker in client.workers()] == ["w1"]
    assert client.health().status == "ok"


def test_a_single_job_above_the_limit_is_refused(client: Client) -> None:
    with pytest.raises(TooLarge):
        client.submit("add", {"a": "x" * (17 << 20)})


async def test_the_async_client_does_all_of_it_too(server: Server, tmp_path: Path) -> None:
    async with AsyncClient(server.url) as client:
        jobs = await asyncio.gather(*(client.submit("add", {"a": n}, tags=["async"]) for n in range(20)))
        assert len([job async for job in client.list(tag="async", page_size=7)]) == 20
        await asyncio.to_thread(server.run, _finish(server.engine, jobs[0].id, 1, b"hello"))
        assert (await client.wait(jobs[0].id, timeout=10)).state is State.SUCCEEDED
        assert (await client.download(jobs[0].id, "täxt 1.txt", tmp_path / "t")).read_bytes() == b"hello"
        answers = await client.submit_many([{"type": "add", "params": {"a": 1}, "inputs": {"f": tmp_path / "t"}}])
        assert answers[0].created
