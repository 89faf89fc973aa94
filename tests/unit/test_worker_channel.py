"""The line between agent and executor, over a real socketpair: one frame that cannot be said or read costs no other."""

import asyncio
import socket
from typing import Any

import msgspec
import pytest

from penstock.model.ids import JobId
from penstock.model.job import ErrorCode, JobError, Progress
from penstock.worker.channel import HEADER, Channel, Garbled, Splitter
from penstock.worker.executor.run import instead_of
from penstock.worker.protocol import Errored, Finished, Pong, Progressed, Start, ToAgent, Wrote

DECODER = msgspec.msgpack.Decoder(list[ToAgent])
HALF = "\ud83d"
JOB = JobId("0190a6e2-0000-7000-8000-000000000000")


class Ends:
    """Both ends of a channel: what one says, the other hears."""

    def __init__(self) -> None:
        self.here, there = socket.socketpair()
        self.heard: list[ToAgent] = []
        self.garbled: list[Exception] = []
        self.over = asyncio.Event()
        self.agent: Channel[ToAgent, Any] = Channel(
            there, DECODER, self.heard.extend, ended=self.over.set, garbled=self._garbled, unsendable=lambda *_: None
        )
        self.executor: Channel[Any, ToAgent] = Channel(
            self.here, DECODER, lambda _: None, ended=lambda: None, garbled=lambda _: None, unsendable=instead_of
        )
        for channel in (self.agent, self.executor):
            channel.open(asyncio.get_running_loop())

    def _garbled(self, error: Exception) -> None:
        self.garbled.append(error)
        self.over.set()

    async def ended(self) -> None:
        self.executor.close()
        async with asyncio.timeout(5):
            await self.over.wait()
        self.agent.close()


BAD: list[tuple[ToAgent, ErrorCode | None]] = [
    (Finished(1, b"1", {"a.txt": HALF}), ErrorCode.INVALID_RESULT),
    (Finished(1, b"1", {"a.txt": object()}), ErrorCode.INVALID_RESULT),  # type: ignore[dict-item]
    (Errored(1, JobError(ErrorCode.RAISED, HALF)), ErrorCode.RAISED),
    (Progressed(1, Progress(0.5, HALF)), None),
    (Wrote(1, (HALF,)), None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("bad", "code"), BAD)
async def test_a_frame_that_cannot_be_encoded_costs_no_other_of_its_turn(bad: ToAgent, code: ErrorCode | None) -> None:
    ends = Ends()
    ends.executor.send([Finished(0, b"0"), bad, Finished(2, b"2")])
    await ends.ended()
    instead = [one for one in ends.heard if one not in (Finished(0, b"0"), Finished(2, b"2"))]
    assert ends.heard[0] == Finished(0, b"0")
    assert ends.heard[-1] == Finished(2, b"2")
    assert [(type(one), one.place, one.error.code) for one in instead if isinstance(one, Errored)] == (
        [(Errored, 1, code)] if code else []
    )
    assert ends.garbled == []


async def test_what_was_said_before_what_cannot_be_read_is_heard_and_nothing_after_it() -> None:
    ends = Ends()
    good = msgspec.msgpack.encode([Pong()])
    framed = len(good).to_bytes(HEADER, "big") + good
    ends.here.sendall(framed + b"\0\0\0\1\xc1" + framed)
    await ends.ended()
    assert ends.heard == [Pong()]
    assert len(ends.garbled) == 1


async def test_a_frame_of_the_other_direction_cannot_be_read() -> None:
    ends = Ends()
    ends.executor.send([Start(1, JOB, "add", 1, 1, b"{}", "/x")])  # type: ignore[list-item]
    await ends.ended()
    assert (ends.heard, len(ends.garbled)) == ([], 1)


@pytest.mark.parametrize("text", [b"hello", b"    ", b"~~~~"])
def test_text_is_never_taken_for_a_length(text: bytes) -> None:
    with pytest.raises(Garbled):
        list(Splitter().feed(text))


def test_a_long_body_is_put_together_in_one_go() -> None:
    body = bytes(range(256)) * 4096
    stream = len(body).to_bytes(HEADER, "big") + body
    splitter = Splitter()
    pieces = [stream[start : start + 1000] for start in range(0, len(stream), 1000)]
    assert [one for piece in pieces for one in splitter.feed(piece)] == [body]
