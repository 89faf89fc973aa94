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
from tests.services.desk import worker
from tests.services.mouth import Mouth, answering

WANTED = WorkRequest(frozenset({"add"}))
WAIT = timedelta(seconds=1)
CLAIMED = msgspec.json.encode(
    ClaimResponse((Claim(job=JobId("j"), fence=3, type="add", queue="add", attempt=1, lease_seconds=15.0),))
)
NOTHING = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n" + b'{"claims":[]}'
PROBLEM = b'{"type":"about:blank","title":"no","status":409,"code":"lease_lost","detail":"gone"}'


PROBLEM_JSON = "application/problem+json; charset=utf-8"


OTHERS_WORDS = [
    answering(404, b"<html>nginx", "text/html"),
    answering(429, b"", "text/plain", retry_after="30"),
    answering(403, PROBLEM, "application/json"),
    answering(302, b"", "text/html", location="http://127.0.0.1:9/login"),
    answering(413, b"<html>too large", "text/html"),
    answering(502, b"<html>bad gateway", "text/html"),
    answering(404, b'{"type":"t","title":"t","status":404,"code":"of_a_gateway"}', PROBLEM_JSON),
    answering(422, b'{"message":"no"}', PROBLEM_JSON),
    answering(500, b'{"type":"t","title":"t","status":500,"code":"error"}', PROBLEM_JSON),
]
FILE = FileLink("a b.txt", ObjectLink("k", 5, hashlib.sha256(b"hello").hexdigest()))
WORKER = worker("w")


async def body_of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def read_whole(reach: HttpWorkerApi) -> object:
    return [chunk async for chunk in reach.read_input(JobId("j"), FILE)]


CALLS: dict[str, Callable[[HttpWorkerApi], Awaitable[object]]] = {
    "join": lambda reach: reach.join(WORKER, []),
    "claim": lambda reach: reach.claim("w", WANTED, 1, WAIT),
    "renew": lambda reach: reach.renew(WORKER, []),
    "settle": lambda reach: reach.settle([]),
    "release": lambda reach: reach.release([]),
    "log": lambda reach: reach.log([]),
    "input": read_whole,
    "output": lambda reach: reach.write_output(Lease(JobId("j"), 3), 0, body_of(b"hello"), "text/plain", "d"),
    "leave": lambda reach: reach.leave("w"),
}


@asynccontextmanager
async def reaching(mouth: Mouth) -> AsyncIterator[HttpWorkerApi]:
    server = await asyncio.start_server(mouth.serve, "127.0.0.1", 0)
    reach = HttpWorkerApi(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base")
    try:
        yield reach
    finally:
        await reach.close()
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
    mouth = Mouth(answer, answer, NOTHING)
    async with reaching(mouth) as reach:
        assert [await reach.claim("w", WANTED, 3, WAIT) for _ in range(3)] == [[], [], []]
    assert mouth.connections == 1
    assert mouth.requests[0].startswith(b"POST /base/v1/workers//claim HTTP/1.1\r\n")
    assert mouth.requests[0].endswith(b'{"types":["add"],"limit":3,"wait_seconds":1.0}')


async def test_a_claim_names_the_queues_to_serve_and_those_to_leave() -> None:
    mouth = Mouth(NOTHING)
    wanted = WorkRequest(frozenset({"add"}), frozenset({"b", "a"}), frozenset({"d", "c"}))
    async with reaching(mouth) as reach:
        await reach.claim("w", wanted, 3, WAIT)
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
    async with reaching(Mouth(answer)) as reach:
        with pytest.raises(ServerUnavailable):
            await reach.claim("w", WANTED, 1, WAIT)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", OTHERS_WORDS, ids=range(len(OTHERS_WORDS)))
async def test_only_a_problem_with_a_known_code_is_the_servers_own_word(call: str, answer: bytes) -> None:
    async with reaching(Mouth(answer)) as reach:
        with pytest.raises(ServerUnavailable) as caught:
            await CALLS[call](reach)
    assert caught.value.details.get("retry_after") == (30 if b" 429 " in answer else None)


@pytest.mark.parametrize("call", CALLS)
async def test_what_the_server_itself_refuses_is_refused_in_every_call(call: str) -> None:
    async with reaching(Mouth(answering(409, PROBLEM, PROBLEM_JSON))) as reach:
        with pytest.raises(LeaseLost, match="gone"):
            await CALLS[call](reach)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    reach = HttpWorkerApi("http://127.0.0.1:1")
    with pytest.raises(ServerUnavailable, match="no answer from http://127"):
        await reach.claim("w", WANTED, 1, WAIT)


async def test_a_cancelled_claim_hangs_up_so_that_the_server_gives_back_what_it_found() -> None:
    mouth = Mouth()
    async with reaching(mouth) as reach:
        asking = asyncio.ensure_future(reach.claim("w", WANTED, 1, WAIT))
        async with asyncio.timeout(5):
            await mouth.asked.wait()
        asking.cancel()
        async with asyncio.timeout(5):
            await mouth.disconnected.wait()


async def test_what_the_answer_to_a_cancelled_claim_still_brings_is_given_back() -> None:
    """The server had answered before it heard that nobody waits any more: it counts the job as handed over."""
    mouth = LateMouth(
        answering(200, CLAIMED, "application/json"), answering(200, b'{"refused":[]}', "application/json")
    )
    async with reaching(mouth) as reach:
        asking = asyncio.ensure_future(reach.claim("w", WANTED, 1, WAIT))
        async with asyncio.timeout(5):
            await mouth.asked.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
    (_, released) = mouth.requests
    assert released.startswith(b"POST /base/v1/workers//release ")
    assert released.endswith(b'{"leases":[{"job":"j","fence":3}],"suspects":false}')


class LateMouth(Mouth):
    """Says its first answer only when the other side has hung up."""

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        request = await super()._request(reader)
        if request and not self.requests:
            self.asked.set()
            await reader.read()
        return request


async def test_an_input_that_does_not_match_its_digest_is_corrupt() -> None:
    mouth = Mouth(answering(200, b"jello", "text/plain"))
    async with reaching(mouth) as reach:
        with pytest.raises(CorruptObject):
            await read_whole(reach)
    assert mouth.requests[0].startswith(b"GET /base/v1/jobs/j/inputs/a%20b.txt ")


async def test_a_page_that_a_proxy_gives_for_an_input_is_not_a_corrupt_one() -> None:
    async with reaching(Mouth(answering(200, b"<html>please log in", "text/html"))) as reach:
        with pytest.raises(ServerUnavailable, match=r"bytes for 'a b\.txt'"):
            await read_whole(reach)


async def test_an_output_is_sent_with_its_digest_and_linked() -> None:
    link = b'{"key":"k","size":5,"digest":"d","content_type":"text/plain"}'
    mouth = Mouth(answering(201, link, "application/json"))
    async with reaching(mouth) as reach:
        answer = await reach.write_output(Lease(JobId("j"), 3), 0, body_of(b"hello"), "text/plain", "d")
    assert answer == ObjectLink("k", 5, "d", "text/plain")
    assert b"digest-sha256: d" in mouth.requests[0].lower()
