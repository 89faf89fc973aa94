"""The engine over HTTP, against a server that answers whatever a test puts into its mouth."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from penstock.model.errors import CorruptObject, LeaseLost, ServerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Claim, FileLink, Lease, ObjectLink
from penstock.model.wire.jobs import ClaimResponse
from penstock.model.workers import WorkRequest
from penstock.worker.http_api import HttpWorkerApi
from tests.services.engine_steps import worker
from tests.services.scripted_server import ScriptedServer, http_response

WANTED = WorkRequest(frozenset({"add"}))
WAIT = timedelta(seconds=1)
CLAIMED = msgspec.json.encode(
    ClaimResponse((Claim(job=JobId("j"), fence=3, type="add", queue="add", attempt=1, lease_seconds=15.0),))
)
NOTHING = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n" + b'{"claims":[]}'
PROBLEM = b'{"type":"about:blank","title":"no","status":409,"code":"lease_lost","detail":"gone"}'


PROBLEM_JSON = "application/problem+json; charset=utf-8"


OTHERS_WORDS = [
    http_response(404, b"<html>nginx", "text/html"),
    http_response(429, b"", "text/plain", retry_after="30"),
    http_response(403, PROBLEM, "application/json"),
    http_response(302, b"", "text/html", location="http://127.0.0.1:9/login"),
    http_response(413, b"<html>too large", "text/html"),
    http_response(502, b"<html>bad gateway", "text/html"),
    http_response(404, b'{"type":"t","title":"t","status":404,"code":"of_a_gateway"}', PROBLEM_JSON),
    http_response(422, b'{"message":"no"}', PROBLEM_JSON),
    http_response(500, b'{"type":"t","title":"t","status":500,"code":"error"}', PROBLEM_JSON),
]
FILE = FileLink("a b.txt", ObjectLink("k", 5, hashlib.sha256(b"hello").hexdigest()))
WORKER = worker("w")


async def body_of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def read_whole(worker_api: HttpWorkerApi) -> object:
    return [chunk async for chunk in worker_api.read_input(JobId("j"), FILE)]


CALLS: dict[str, Callable[[HttpWorkerApi], Awaitable[object]]] = {
    "join": lambda worker_api: worker_api.join(WORKER, []),
    "claim": lambda worker_api: worker_api.claim("w", WANTED, 1, WAIT),
    "renew": lambda worker_api: worker_api.renew(WORKER, []),
    "settle": lambda worker_api: worker_api.settle([]),
    "release": lambda worker_api: worker_api.release([]),
    "log": lambda worker_api: worker_api.log([]),
    "input": read_whole,
    "output": lambda worker_api: worker_api.write_output(Lease(JobId("j"), 3), 0, body_of(b"hello"), "text/plain", "d"),
    "leave": lambda worker_api: worker_api.leave("w"),
}


@asynccontextmanager
async def reaching(mouth: ScriptedServer) -> AsyncIterator[HttpWorkerApi]:
    server = await asyncio.start_server(mouth.serve, "127.0.0.1", 0)
    worker_api = HttpWorkerApi(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base")
    try:
        yield worker_api
    finally:
        await worker_api.close()
        async with asyncio.timeout(5):
            await mouth.disconnected.wait()
        server.close()


@pytest.mark.parametrize(
    "answer",
    [
        NOTHING,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b'5\r\n{"cla\r\n8;x=y\r\nims":[]}\r\n0\r\nT: 1\r\n\r\n',
        b"HTTP/1.1 100 Continue\r\n\r\n" + NOTHING,
    ],
)
async def test_answers_are_read_however_they_are_framed_on_one_connection(answer: bytes) -> None:
    mouth = ScriptedServer(answer, answer, NOTHING)
    async with reaching(mouth) as worker_api:
        assert [await worker_api.claim("w", WANTED, 3, WAIT) for _ in range(3)] == [[], [], []]
    assert mouth.connections == 1
    assert mouth.requests[0].startswith(b"POST /base/v1/workers//claim HTTP/1.1\r\n")
    assert mouth.requests[0].endswith(b'{"types":["add"],"limit":3,"wait_seconds":1.0}')


async def test_a_claim_names_the_queues_to_serve_and_those_to_leave() -> None:
    mouth = ScriptedServer(NOTHING)
    wanted = WorkRequest(frozenset({"add"}), frozenset({"b", "a"}), frozenset({"d", "c"}))
    async with reaching(mouth) as worker_api:
        await worker_api.claim("w", wanted, 3, WAIT)
    assert mouth.requests[0].endswith(b'"queues":["a","b"],"except_queues":["c","d"]}')


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull",
        b'HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"\xff"',
        b"rubbish\r\n\r\n",
    ],
)
async def test_what_is_no_answer_of_ours_is_an_error_never_a_value(answer: bytes) -> None:
    async with reaching(ScriptedServer(answer)) as worker_api:
        with pytest.raises(ServerUnavailable):
            await worker_api.claim("w", WANTED, 1, WAIT)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", OTHERS_WORDS, ids=range(len(OTHERS_WORDS)))
async def test_only_a_problem_with_a_known_code_is_the_servers_own_word(call: str, answer: bytes) -> None:
    async with reaching(ScriptedServer(answer)) as worker_api:
        with pytest.raises(ServerUnavailable) as caught:
            await CALLS[call](worker_api)
    assert caught.value.details.get("retry_after") == (30 if b" 429 " in answer else None)


@pytest.mark.parametrize("call", CALLS)
async def test_what_the_server_itself_refuses_is_refused_in_every_call(call: str) -> None:
    async with reaching(ScriptedServer(http_response(409, PROBLEM, PROBLEM_JSON))) as worker_api:
        with pytest.raises(LeaseLost, match="gone"):
            await CALLS[call](worker_api)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    worker_api = HttpWorkerApi("http://127.0.0.1:1")
    with pytest.raises(ServerUnavailable, match="no answer from http://127"):
        await worker_api.claim("w", WANTED, 1, WAIT)


async def test_a_cancelled_claim_hangs_up_so_that_the_server_gives_back_what_it_found() -> None:
    mouth = ScriptedServer()
    async with reaching(mouth) as worker_api:
        asking = asyncio.ensure_future(worker_api.claim("w", WANTED, 1, WAIT))
        async with asyncio.timeout(5):
            await mouth.asked.wait()
        asking.cancel()
        async with asyncio.timeout(5):
            await mouth.disconnected.wait()


async def test_what_the_answer_to_a_cancelled_claim_still_brings_is_given_back() -> None:
    """The server had answered before it heard that nobody waits any more: it counts the job as handed over."""
    mouth = LateMouth(
        http_response(200, CLAIMED, "application/json"), http_response(200, b'{"refused":[]}', "application/json")
    )
    async with reaching(mouth) as worker_api:
        asking = asyncio.ensure_future(worker_api.claim("w", WANTED, 1, WAIT))
        async with asyncio.timeout(5):
            await mouth.asked.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
    (_, released) = mouth.requests
    assert released.startswith(b"POST /base/v1/workers//release ")
    assert released.endswith(b'{"leases":[{"job":"j","fence":3}],"suspects":false}')


class LateMouth(ScriptedServer):
    """Says its first answer only when the other side has hung up."""

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        request = await super()._request(reader)
        if request and not self.requests:
            self.asked.set()
            await reader.read()
        return request


async def test_an_input_that_does_not_match_its_digest_is_corrupt() -> None:
    mouth = ScriptedServer(http_response(200, b"jello", "text/plain"))
    async with reaching(mouth) as worker_api:
        with pytest.raises(CorruptObject):
            await read_whole(worker_api)
    assert mouth.requests[0].startswith(b"GET /base/v1/jobs/j/inputs/a%20b.txt ")


async def test_a_page_that_a_proxy_gives_for_an_input_is_not_a_corrupt_one() -> None:
    async with reaching(ScriptedServer(http_response(200, b"<html>please log in", "text/html"))) as worker_api:
        with pytest.raises(ServerUnavailable, match=r"bytes for 'a b\.txt'"):
            await read_whole(worker_api)


async def test_an_output_is_sent_with_its_digest_and_linked() -> None:
    link = b'{"key":"k","size":5,"digest":"d","content_type":"text/plain"}'
    mouth = ScriptedServer(http_response(201, link, "application/json"))
    async with reaching(mouth) as worker_api:
        answer = await worker_api.write_output(Lease(JobId("j"), 3), 0, body_of(b"hello"), "text/plain", "d")
    assert answer == ObjectLink("k", 5, "d", "text/plain")
    assert b"digest-sha256: d" in mouth.requests[0].lower()
