"""What a handler may know and say about its own run."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, SupportsFloat, SupportsIndex

from penstock.model.errors import Invalid, NotFound
from penstock.model.ids import JobId
from penstock.model.job import Progress
from penstock.model.names import check_file_name
from penstock.model.text import readable
from penstock.model.wire.jobs import is_content_type

logger = logging.getLogger("penstock.job")
MESSAGE_CHARACTERS = 4 * 1024
"""How much of a progress message is kept."""


class Cancelled(BaseException):
    """Raised inside a handler that must stop: its job was cancelled, timed out, or lost its lease.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it.
    """


class Inputs(Mapping[str, Path]):
    """The job's input files, by name: where each lies on this machine, read-only."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)

    def __getitem__(self, name: str) -> Path:
        try:
            return self._files[name]
        except KeyError:
            known = ", ".join(sorted(self._files)) or "none"
            raise NotFound(f"this job has no input named {name!r}; it has: {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class Outputs:
    """The files this attempt gives. They become visible together, when its success is recorded, or never."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.content_types: dict[str, str] = {}

    def path(self, name: str, content_type: str | None = None) -> Path:
        """Where to write the output of this name."""
        check_file_name(name)
        if content_type is not None and not is_content_type(content_type):
            raise Invalid(f"{content_type!r} is not a content type: expected something like text/csv")
        self._folder.mkdir(parents=True, exist_ok=True)
        if content_type is not None:
            self.content_types[name] = content_type
        return self._folder / name

    def write(self, name: str, content: bytes | str, content_type: str | None = None) -> Path:
        """Write a whole output at once; text as UTF-8."""
        path = self.path(name, content_type)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


class Context:
    """Given to a handler whose first parameter is annotated with this class. Heartbeats are not its business."""

    __penstock_context__: ClassVar[bool] = True

    def __init__(
        self,
        *,
        job: JobId,
        type: str,
        attempt: int,
        fence: int,
        params: Mapping[str, object],
        tags: tuple[str, ...] = (),
        inputs: Inputs,
        outputs: Outputs,
        report: Callable[[Progress], None],
    ) -> None:
        self.id = job
        self.type = type
        self.attempt = attempt
        self.fence = fence
        self.params = params
        self.tags = tags
        self.inputs = inputs
        self.outputs = outputs
        self.log = logger
        self.cancelled = False
        self._report = report

    def progress(self, fraction: SupportsFloat, message: str | None = None) -> None:
        """Tell how far the job is, from 0 to 1, by any kind of number. Cheap: call it as often as you like."""
        done = fraction if type(fraction) is float else _as_float(fraction)
        if not 0 <= done <= 1:
            raise Invalid(f"progress is a number from 0 to 1, not {fraction!r}")
        if message is not None and not isinstance(message, str):
            raise TypeError(f"the message of a progress is text, not {type(message).__name__}")
        self._report(Progress(done, None if message is None else readable(message)[:MESSAGE_CHARACTERS]))

    def check(self) -> None:
        """Raise Cancelled if this job has been asked to stop: for loops in handlers that run in a thread."""
        if self.cancelled:
            raise Cancelled(f"job {self.id} was asked to stop")


def _as_float(fraction: object) -> float:
    if isinstance(fraction, (str, bytes, bytearray)) or not isinstance(fraction, SupportsFloat | SupportsIndex):
        raise TypeError(f"progress is a number from 0 to 1, not {type(fraction).__name__}")
    try:
        return float(fraction)
    except OverflowError:
        return math.inf
