"""A TCP proxy that does to a connection what networks do: nothing at all, slowness, silence, refusal."""

import asyncio
import threading
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Self


class Fault(StrEnum):
    """`silent` lets connections stand and passes no byte on; `refusing` breaks them and takes no new ones.

    `deaf` breaks one connection when the server next answers on it, and is over then.
    """

    NONE = "none"
    SLOW = "slow"
    DEAF = "deaf"
    SILENT = "silent"
    REFUSING = "refusing"


class FaultProxy:
    """Passes bytes between `port` and a server on loopback, in a thread of its own; `fault` may be changed any time."""

    def __init__(self, target: int, *, delay: float = 0.2) -> None:
        self.target = target
        self.delay = delay
        self.port = 0
        self._fault = Fault.NONE
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._healed = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def fault(self) -> Fault:
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        asyncio.run_coroutine_threadsafe(self._turn(fault), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._pass, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._healed.set()
        self._started.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._finish())
        self._loop.close()

    async def _finish(self) -> None:
        """Break all connections and wait for their tasks. Those not begun yet must begin, or nothing closes theirs."""
        await self._turn(Fault.REFUSING)
        while passing := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(passing)

    async def _turn(self, fault: Fault) -> None:
        self._fault = fault
        if fault is Fault.SILENT:
            self._healed.clear()
        else:
            self._healed.set()
        if fault is Fault.REFUSING:
            for writer in list(self._writers):
                writer.transport.abort()

    def _refuses(self) -> bool:
        return self._fault is Fault.REFUSING

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses():
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        if self._refuses():
            writer.transport.abort()
            there_writer.transport.abort()
            return
        self._writers |= {writer, there_writer}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, there_writer))
                both.create_task(self._pump(there_reader, writer, answers=True))
        finally:
            self._writers -= {writer, there_writer}
            writer.transport.abort()
            there_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65536):
                await self._healed.wait()
                if answers and self._fault is Fault.DEAF:
                    self._fault = Fault.NONE
                    writer.transport.abort()
                    return
                if self._fault is Fault.SLOW:
                    await asyncio.sleep(self.delay)
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()
