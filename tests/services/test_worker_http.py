"""The engine over HTTP, against a server that answers whatever a test puts into its mouth."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from penstock.model.errors import CorruptObject, LeaseLost, Refused, ServerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import FileLink, Lease, ObjectLink
from penstock.model.workers import Subscription
from penstock.worker.http import HttpReach

WANTED = Subscription(frozenset({"add"}))
WAIT = timedelta(seconds=1)
NOTHING = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n" + b'{"claims":[]}'
PROBLEM = b'{"type":"about:blank","title":"no","status":409,"code":"lease_lost","detail":"gone"}'


class Mouth:
    """Says one answer per request, in order, and remembers what was asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.disconnected = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await self._request(reader):
                self.requests.append(head)
                self.asked.set()
                if self.answers:
                    writer.write(self.answers.pop(0))
        finally:
            self.disconnected.set()
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        lengths = [line for line in head.split(b"\r\n") if line.startswith(b"content-length")]
        return head + await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)


@asynccontextmanager
async def reaching(mouth: Mouth) -> AsyncIterator[HttpReach]:
    server = await asyncio.start_server(mouth.serve, "127.0.0.1", 0)
    reach = HttpReach(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base")
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
    wanted = Subscription(frozenset({"add"}), frozenset({"b", "a"}), frozenset({"d", "c"}))
    async with reaching(mouth) as reach:
        await reach.claim("w", wanted, 3, WAIT)
    assert mouth.requests[0].endswith(b'"queues":["a","b"],"except_queues":["c","d"]}')


async def test_a_problem_becomes_the_error_it_stands_for() -> None:
    head = b"HTTP/1.1 409 Conflict\r\ncontent-length: %d\r\n\r\n" % len(PROBLEM)
    async with reaching(Mouth(head + PROBLEM)) as reach:
        with pytest.raises(LeaseLost, match="gone"):
            await reach.settle([])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 2\r\n\r\nno", ServerUnavailable),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno", Refused),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull", ServerUnavailable),
        (b"rubbish\r\n\r\n", ServerUnavailable),
    ],
)
async def test_what_is_no_answer_of_ours_is_an_error_never_a_value(answer: bytes, error: type[Exception]) -> None:
    async with reaching(Mouth(answer)) as reach:
        with pytest.raises(error):
            await reach.claim("w", WANTED, 1, WAIT)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    reach = HttpReach("http://127.0.0.1:1")
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


async def test_an_input_that_does_not_match_its_digest_is_corrupt() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\njello"
    file = FileLink("a b.txt", ObjectLink("k", 5, hashlib.sha256(b"hello").hexdigest()))
    mouth = Mouth(answer)
    async with reaching(mouth) as reach:
        with pytest.raises(CorruptObject):
            [chunk async for chunk in reach.read_input(JobId("j"), file)]
    assert mouth.requests[0].startswith(b"GET /base/v1/jobs/j/inputs/a%20b.txt ")


async def test_an_output_is_sent_with_its_digest_and_linked() -> None:
    link = b'{"key":"k","size":5,"digest":"d","content_type":"text/plain"}'
    mouth = Mouth(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n" % len(link) + link)

    async def body() -> AsyncIterator[bytes]:
        yield b"hello"

    async with reaching(mouth) as reach:
        answer = await reach.write_output(Lease(JobId("j"), 3), 0, body(), "text/plain", "d")
    assert answer == ObjectLink("k", 5, "d", "text/plain")
    assert b"digest-sha256: d" in mouth.requests[0].lower()
