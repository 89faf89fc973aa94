"""One run of a handler, from the frame that starts it to the frame that reports its end."""

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from penstock.app import Handler
from penstock.context import Context, Inputs, Outputs
from penstock.model.errors import InvalidParams
from penstock.model.job import NEVER_RETRIED, ErrorCode, JobError, LogLine, Progress
from penstock.model.results import ResultMisfit
from penstock.model.retry import exception_names
from penstock.model.text import readable
from penstock.worker.executor.log_capture import JobLog
from penstock.worker.executor.threads import ThreadWork
from penstock.worker.protocol import Errored, Finished, Skipped, Start, Stopped, ToAgent, Wrote

TRACEBACK_CHARACTERS = 16 * 1024
MESSAGE_CHARACTERS = 4 * 1024

End = Finished | Errored | Stopped | Skipped


class RunHost(Protocol):
    """What a run needs of its executor; callable from any thread."""

    @property
    def result_bytes(self) -> int:
        """The longest result as JSON."""
        ...

    def new_log(self, attempt: int, send: Callable[[tuple[LogLine, ...]], None]) -> JobLog: ...

    def send(self, frames: list[ToAgent]) -> None: ...

    def soon(self) -> None:
        """Send progress and logs soon."""
        ...


class Run(Struct, eq=False):
    """The run of one attempt's handler."""

    start: Start
    handler: Handler[..., Any]
    host: RunHost
    begun: bool = False
    calling: bool = False
    stopping: bool = False
    context: Context | None = None
    log: JobLog | None = None
    progress: Progress | None = None
    task: asyncio.Task[None] | None = None
    work: ThreadWork | None = None
    told: End | None = None

    @property
    def end(self) -> End:
        """The frame of its end; Stopped if none was set."""
        return self.told or Stopped(self.start.place)

    # -- its call

    def arguments(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments of the handler's function; InvalidParams if the params do not fit."""
        signature = self.handler.signature
        if signature is None:
            raise RuntimeError(f"job type {self.start.type!r} has no function")
        named = signature.decode(self.start.params)
        if not signature.takes_context:
            return (), named
        self.context = self._new_context(named)
        return (self.context,), named

    def _new_context(self, params: dict[str, object]) -> Context:
        start = self.start
        context = Context(
            job=start.job,
            type=start.type,
            attempt=start.attempt,
            fence=start.fence,
            params=params,
            tags=start.tags,
            inputs=Inputs({name: Path(path) for name, path in start.inputs.items()}),
            outputs=Outputs(Path(start.folder) / "outputs"),
            report=self.report,
        )
        context.cancelled = self.stopping
        return context

    # -- progress and logs

    def report(self, progress: Progress) -> None:
        known, self.progress = self.progress, progress
        if known is None:
            self.host.soon()

    def open_log(self) -> JobLog:
        if self.log is None:
            self.log = self.host.new_log(self.start.attempt, self._send_lines)
        return self.log

    def _send_lines(self, lines: tuple[LogLine, ...]) -> None:
        self.host.send([Wrote(self.start.place, lines)])

    # -- its end

    def returned(self, value: object) -> None:
        """Record the handler's return value. A handler that was asked to stop counts as stopped."""
        if self.stopping:
            return
        try:
            result = self.handler.returns.write(value, self.host.result_bytes)
        except ResultMisfit as misfit:
            self.told = self._errored(ErrorCode.INVALID_RESULT, str(misfit))
        except Exception as error:  # noqa: BLE001 - encoding may run user code too
            text = f"the handler returned {type(value).__name__}, which is not JSON: {readable(error)}"
            self.told = self._errored(ErrorCode.INVALID_RESULT, text)
        else:
            self.told = Finished(self.start.place, result, self._outputs())

    def raised(self, error: BaseException) -> None:
        if self.stopping:
            return
        if isinstance(error, InvalidParams) and not self.calling:
            self.told = self._errored(ErrorCode.INVALID_PARAMS, error.message)
        else:
            self.told = self._errored(ErrorCode.RAISED, readable(error), error)

    def _outputs(self) -> dict[str, str] | None:
        if self.context is None or not Path(self.start.folder, "outputs").exists():
            return None
        return {readable(name): readable(kind) for name, kind in self.context.outputs.content_types.items()}

    def _errored(self, code: ErrorCode, message: str, error: BaseException | None = None) -> Errored:
        classes = () if error is None else exception_names(type(error))
        told = JobError(
            code,
            readable(message)[:MESSAGE_CHARACTERS],
            attempt=self.start.attempt,
            error_class=classes[0] if classes else None,
            traceback=_traceback(error) if error is not None else None,
            retryable=code not in NEVER_RETRIED,
            error_bases=classes[1:],
        )
        return Errored(self.start.place, told)


def unknown_type(start: Start) -> Errored:
    """The end of a job without a handler here: the app has changed since this worker declared its types."""
    text = f"the app has no handler {start.type!r} any more; restart the worker"
    return Errored(start.place, JobError(ErrorCode.RAISED, text, attempt=start.attempt))


def instead_of(frame: ToAgent, error: Exception) -> ToAgent | None:
    """The replacement for a frame that cannot be encoded: an error for an end, None for any other."""
    match frame:
        case Finished(place):
            text = f"what the handler returned cannot be passed on: {readable(error)}"
            return Errored(place, JobError(ErrorCode.INVALID_RESULT, text, retryable=False))
        case Errored(place):
            text = f"the handler's error cannot be passed on: {readable(error)}"
            return Errored(place, JobError(ErrorCode.RAISED, text))
        case _:
            return None


def _traceback(error: BaseException) -> str:
    """The user's part of the traceback, without Penstock's frame; a long one keeps its end."""
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception as fault:  # noqa: BLE001 - notes, causes and source lines are user code's too
        text = f"the traceback cannot be had: {readable(fault)}"
    return readable(text)[-TRACEBACK_CHARACTERS:]
