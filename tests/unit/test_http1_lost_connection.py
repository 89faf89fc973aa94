"""Hanging up on a server that is gone already does nothing, on each event loop."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from penstock.http1 import Http1Connection


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_hanging_up_on_a_lost_connection_does_nothing(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.transport.abort()
            await writer.wait_closed()
            Http1Connection(reader, writer, 0.0).hang_up()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
