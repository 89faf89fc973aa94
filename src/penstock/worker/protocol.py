"""The frames between agent and executor: four bytes of length, then a msgpack list of these structs.

A *place* is the index of one job in its executor; it is free again once the job's end has been reported.
"""

from collections.abc import Mapping

from msgspec import Struct

from penstock.model.ids import JobId
from penstock.model.job import JobError, LogLine, Progress
from penstock.model.workers import JobType


class Frame(Struct, frozen=True, array_like=True, tag_field="frame"):
    """One message; its tag names the kind."""


# -- from agent to executor


class Load(Frame, frozen=True, tag=0):
    """Always first: import this app. The SDK calls the server at `url` with `key`.

    An attempt keeps at most `log_bytes` of log, and its result has at most `result_bytes` of JSON.
    """

    app: str
    log_bytes: int
    result_bytes: int
    url: str
    key: str


class Start(Frame, frozen=True, tag=1, gc=False):
    """Run an attempt. `inputs` are paths by name; `scratch` is the folder of all attempts of the worker."""

    place: int
    job: JobId
    type: str
    attempt: int
    fence: int
    params: bytes
    scratch: str
    tags: tuple[str, ...] = ()
    inputs: Mapping[str, str] = {}

    @property
    def folder(self) -> str:
        """The folder of its outputs, created with the first one."""
        return folder_of(self.scratch, self.job, self.fence)


def folder_of(scratch: str, job: JobId, fence: int) -> str:
    """The folder of one attempt; most need none."""
    return f"{scratch}/{job}.{fence}"


class Stop(Frame, frozen=True, tag=2):
    """Ask the handler to stop: a cancelled task, `ctx.cancelled` set."""

    place: int


class Interrupt(Frame, frozen=True, tag=3):
    """Raise Cancelled inside the thread of a handler that did not stop when asked."""

    place: int


class Ping(Frame, frozen=True, tag=4):
    """Answer as soon as the event loop runs."""


class Leave(Frame, frozen=True, tag=5):
    """End the process; it holds no job."""


ToExecutor = Load | Start | Stop | Interrupt | Ping | Leave


# -- from executor to agent


class Program(Struct, frozen=True, array_like=True):
    """The program of a command handler; the agent runs it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}


class Loaded(Frame, frozen=True, tag=10):
    """The app is imported; these are its types, the programs of those that are commands, and its schedules.

    A schedule is the JSON of its `ScheduleRequest`: params are JSON, which msgpack cannot hold as they are.
    """

    types: tuple[JobType, ...]
    programs: Mapping[str, Program]
    schedules: tuple[bytes, ...] = ()


class LoadFailed(Frame, frozen=True, tag=11):
    """The app could not be imported; the process ends."""

    message: str
    traceback: str


class Finished(Frame, frozen=True, tag=12, gc=False):
    """The handler returned. `outputs` is None when it wrote no files, else their declared content types."""

    place: int
    result: bytes
    outputs: Mapping[str, str] | None = None


class Errored(Frame, frozen=True, tag=13):
    place: int
    error: JobError


class Stopped(Frame, frozen=True, tag=14):
    """The handler ended after it had been asked to stop."""

    place: int


class Skipped(Frame, frozen=True, tag=15):
    """The job was taken back before it started; it never ran here."""

    place: int


class Wrote(Frame, frozen=True, tag=16):
    place: int
    lines: tuple[LogLine, ...]


class Progressed(Frame, frozen=True, tag=17):
    place: int
    progress: Progress


class Pong(Frame, frozen=True, tag=18):
    """The event loop runs."""


ToAgent = Loaded | LoadFailed | Finished | Errored | Stopped | Skipped | Wrote | Progressed | Pong
