"""Runs a job type that is a program: argv, never a shell; a clean environment; its own process group."""

import asyncio
import codecs
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.model.clock import Clock, seconds, within
from penstock.model.job import JSON_NULL, Claim, ErrorCode, LogLine
from penstock.model.results import ResultMisfit, check_written
from penstock.worker.agent.attempt import Attempt, Ending, Failed, Halted, Returned, attempt_error
from penstock.worker.log_lines import LineSplitter
from penstock.worker.processes import describe, die_with_starter, kill_group
from penstock.worker.protocol import Program

INHERITED = ("PATH", "HOME", "LANG")
CHUNK_BYTES = 64 * 1024
TAIL_CHARACTERS = 2_000
LINGER = seconds(1.0)
"""How long output is read after the program has ended: a process it started may hold the pipes open."""

Wrote = Callable[[Attempt, tuple[LogLine, ...]], None]


class CommandRun:
    """One run of a program."""

    def __init__(
        self,
        program: Program,
        attempt: Attempt,
        clock: Clock,
        log_bytes: int,
        wrote: Wrote,
        *,
        result_bytes: int,
    ) -> None:
        self._program = program
        self._attempt = attempt
        self._clock = clock
        self._wrote = wrote
        self._lines = LineSplitter(attempt.claim.attempt, log_bytes)
        self._result_bytes = result_bytes
        self._tail = ""
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> Ending:
        """Run the program to its end. Afterwards no process of its group is left."""
        folder = Path(self._attempt.folder)
        await asyncio.to_thread(_make_folders, folder)
        try:
            self._process = process = await self._start(folder)
        except (OSError, ValueError) as error:
            return self._failed(f"{self._program.argv[0]} cannot be started: {error}")
        if self._attempt.reason is not None:
            self.ask(self._attempt)
        try:
            status = await self._follow(process)
        finally:
            kill_group(process.pid, signal.SIGKILL)
            self._wrote(self._attempt, self._lines.finish(self._clock.now()))
        return await asyncio.to_thread(self._ending, status, folder)

    async def _start(self, folder: Path) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._program.argv,
            env=environment(self._program, self._attempt.claim, folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_starter,
        )

    async def _follow(self, process: asyncio.subprocess.Process) -> int:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("the program was started without its pipes")
        async with asyncio.TaskGroup() as tasks:
            talk = [
                tasks.create_task(_feed(process.stdin, bytes(self._attempt.claim.params))),
                tasks.create_task(self._read("stdout", process.stdout)),
                tasks.create_task(self._read("stderr", process.stderr)),
            ]
            status = await process.wait()
            await within(LINGER, asyncio.wait(talk))
            for task in talk:
                task.cancel()
        return status

    async def _read(self, stream: str, source: asyncio.StreamReader) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while chunk := await source.read(CHUNK_BYTES):
            text = decoder.decode(chunk)
            if stream == "stderr":
                self._tail = (self._tail + text)[-TAIL_CHARACTERS:]
            if self._lines.write(self._clock.now(), stream, text):
                self._wrote(self._attempt, self._lines.take())

    def _ending(self, status: int, folder: Path) -> Ending:
        if self._attempt.reason is not None:
            return Halted()
        if status != 0:
            tail = self._tail.strip()
            return self._failed(f"the program {describe(status)}" + (f": {tail}" if tail else ""))
        try:
            result = _read_result(folder / "result.json", self._result_bytes)
        except ResultMisfit as error:
            return self._misfit(str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._misfit(f"the program's result is not JSON: {error}")
        return Returned(result, {})

    def _misfit(self, message: str) -> Failed:
        return Failed(attempt_error(self._attempt.claim, ErrorCode.INVALID_RESULT, message))

    def _failed(self, message: str) -> Failed:
        return Failed(attempt_error(self._attempt.claim, ErrorCode.EXIT_STATUS, message))

    # -- stopping it

    def ask(self, attempt: Attempt) -> None:
        self._signal(signal.SIGTERM)

    def insist(self, attempt: Attempt) -> None:
        """Do nothing: a program is only asked once."""

    def kill(self, attempt: Attempt) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            kill_group(self._process.pid, number)


def environment(program: Program, claim: Claim, folder: Path) -> dict[str, str]:
    """The environment of the program: a few variables of this process, those declared with it, and its job's."""
    return {
        **{name: os.environ[name] for name in INHERITED if name in os.environ},
        **program.env,
        "PENSTOCK_JOB_ID": claim.job,
        "PENSTOCK_ATTEMPT": str(claim.attempt),
        "PENSTOCK_INPUTS": str(folder / "inputs"),
        "PENSTOCK_OUTPUTS": str(folder / "outputs"),
        "PENSTOCK_RESULT": str(folder / "result.json"),
    }


def _make_folders(folder: Path) -> None:
    for part in ("inputs", "outputs"):
        (folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)


async def _feed(stdin: asyncio.StreamWriter, params: bytes) -> None:
    try:
        stdin.write(params)
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        return  # a program need not read its params


def _read_result(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
    except FileNotFoundError:
        return JSON_NULL
    check_written(raw, most_bytes)
    return raw
