"""Runs jobs in an executor process: coroutine handlers on the event loop, plain functions in threads."""

import asyncio
import contextvars
import os
import socket
from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import NoReturn

import msgspec

from penstock.app import Penstock
from penstock.model.clock import Clock
from penstock.model.job import LogLine
from penstock.model.results import least_bytes
from penstock.model.text import readable
from penstock.worker.channel import Channel
from penstock.worker.executor.loader import describe_app
from penstock.worker.executor.log_capture import FLUSH_SECONDS, WRITING, JobLog
from penstock.worker.executor.run import Run, instead_of, unknown_type
from penstock.worker.executor.threads import Threads, ThreadWork
from penstock.worker.log_lines import LineSplitter
from penstock.worker.protocol import (
    Interrupt,
    Leave,
    Load,
    Ping,
    Pong,
    Progressed,
    Skipped,
    Start,
    Stop,
    ToAgent,
    ToExecutor,
)
from penstock.worker.start_flags import StartFlags

LARGE_BYTES = 64 * 1024
DECODER = msgspec.msgpack.Decoder(list[ToExecutor])


class Executor:
    """Starts each job that the agent sends at once: the agent never sends more than there is room for."""

    def __init__(self, app: Penstock, end: socket.socket, flags: StartFlags, clock: Clock, load: Load) -> None:
        self._handlers = app.handlers
        self._loaded = describe_app(app)
        self._flags = flags
        self._clock = clock
        self._log_bytes = load.log_bytes
        self.result_bytes = load.result_bytes
        self._channel: Channel[ToExecutor, ToAgent] = Channel(
            end, DECODER, self._receive, ended=_orphaned, garbled=_garbled, unsendable=instead_of
        )
        self._loop: asyncio.AbstractEventLoop
        self._left: asyncio.Future[None]
        self._runs: dict[int, Run] = {}
        self._threads = Threads()
        self._looking = False
        self._coroutines = {name for name, one in app.handlers.items() if iscoroutinefunction(one.function)}

    async def serve(self) -> None:
        """Run jobs until the agent sends Leave."""
        self._loop = asyncio.get_running_loop()
        self._left = self._loop.create_future()
        self._channel.open(self._loop)
        self._channel.post([self._loaded])
        await self._left

    def _receive(self, frames: list[ToExecutor]) -> None:
        for frame in frames:
            match frame:
                case Start():
                    self._start(frame)
                case Stop(place):
                    self._stop(place)
                case Interrupt(place):
                    self._interrupt(place)
                case Ping():
                    self._channel.post([Pong()])
                case Leave():
                    self._leave()
                case Load():
                    raise RuntimeError("an executor loads one app only")

    def _start(self, start: Start) -> None:
        handler = self._handlers.get(start.type)
        if handler is None:
            self._channel.post([unknown_type(start)])
            return
        run = Run(start, handler, self)
        self._runs[start.place] = run
        if start.type in self._coroutines:
            run.task = self._loop.create_task(self._await(run))
        else:
            context = contextvars.copy_context()
            run.work = ThreadWork(partial(context.run, self._call, run), partial(self._tell_from_thread, run))
            self._threads.start(run.work)

    async def _await(self, run: Run) -> None:
        if self._begins(run):
            WRITING.set(run)
            try:
                args, named = run.arguments()
                run.calling = True
                await take_result(run, await run.handler.function(*args, **named))  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - a handler may raise anything; all of it is its job's error
                run.raised(error)
            WRITING.set(None)
        self._tell(run)

    def _call(self, run: Run) -> None:
        if self._begins(run):
            WRITING.set(run)
            try:
                args, named = run.arguments()
                run.calling = True
                run.returned(run.handler.function(*args, **named))  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - as above
                run.raised(error)

    def _begins(self, run: Run) -> bool:
        """Whether to call the handler: not if its job was taken back, or asked to stop, before it began."""
        run.begun = True
        if not self._flags.begin(run.start.place):
            run.told = Skipped(run.start.place)
            return False
        return not run.stopping

    def _tell_from_thread(self, run: Run) -> None:
        self._loop.call_soon_threadsafe(self._thread_ended, run)

    def _thread_ended(self, run: Run) -> None:
        self._threads.ended()
        self._tell(run)

    def _tell(self, run: Run) -> None:
        """Report how the run ended, after its log lines."""
        del self._runs[run.start.place]
        if run.log is not None:
            run.log.finish()
        if run.progress is not None:
            self._channel.post([Progressed(run.start.place, run.progress)])
        self._channel.post([run.end])

    def _stop(self, place: int) -> None:
        run = self._runs.get(place)
        if run is None:
            return
        run.stopping = True
        if run.context is not None:
            run.context.cancelled = True
        # A task cancelled before its first step would end without a report.
        if run.task is not None and run.begun:
            run.task.cancel()

    def _interrupt(self, place: int) -> None:
        run = self._runs.get(place)
        if run is not None and run.work is not None:
            run.work.interrupt()

    def _leave(self) -> None:
        if not self._left.done():
            self._left.set_result(None)

    # -- for its runs, from any thread

    def new_log(self, attempt: int, send: Callable[[tuple[LogLine, ...]], None]) -> JobLog:
        return JobLog(LineSplitter(attempt, self._log_bytes), self._clock, send, self.soon)

    def send(self, frames: list[ToAgent]) -> None:
        self._channel.send(frames)

    def soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.call_soon_threadsafe(self._loop.call_later, FLUSH_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = False
        for run in self._runs.values():
            if run.log is not None:
                run.log.flush()
            if run.progress is not None:
                self._channel.post([Progressed(run.start.place, run.progress)])
                run.progress = None


async def take_result(run: Run, value: object) -> None:
    """Check and encode a result; a large one in a thread, so that it does not block the event loop."""
    if value is not None and least_bytes(value, LARGE_BYTES) > LARGE_BYTES:
        await asyncio.to_thread(run.returned, value)
    else:
        run.returned(value)


def _orphaned() -> NoReturn:
    os._exit(1)


def _garbled(error: Exception) -> NoReturn:
    os.write(2, f"penstock: the agent said what cannot be read: {readable(error)}\n".encode())
    os._exit(1)
