"""The client of a prefork process. Every call blocks, for milliseconds once the app is imported."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock

import msgspec

from penstock.worker.prefork.protocol import (
    ANSWERS,
    Answer,
    Forked,
    ForkExecutor,
    ForkWorker,
    Imported,
    NotForked,
    NotImported,
    Request,
    receive,
    send,
)
from penstock.worker.processes import adopt_orphans

ANSWER_SECONDS = 10.0
"""A fork takes milliseconds; a prefork process that gives no answer for this long counts as dead."""


class PreforkLost(Exception):
    """The prefork process gave no answer or could not fork. A process that it forked anyway ends by itself."""


class PreforkClient:
    """A connection to a prefork process; usable from any thread, one request at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._one_at_a_time = Lock()

    def imported(self, seconds: float) -> Imported | NotImported:
        """Its first message; call once."""
        self._end.settimeout(seconds)
        answer = self._answer()
        if not isinstance(answer, Imported | NotImported):
            raise PreforkLost(f"it answered {answer} before anything else")
        return answer

    def fork_worker(self, environment: Mapping[str, str]) -> int:
        """Fork a worker with this environment added to its own; its pid. It is a child of this process."""
        return self._fork(ForkWorker(environment))

    def fork_executor(self, end: int, flags: int, places: int) -> int:
        """Fork an executor with copies of these descriptors; its pid. It is a child of this process."""
        return self._fork(ForkExecutor(places), (end, flags))

    def close(self) -> None:
        """Let the process end. A call that waits in another thread gets no answer."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()

    def _fork(self, request: Request, descriptors: Sequence[int] = ()) -> int:
        with self._one_at_a_time, adopt_orphans():
            self._ask(request, descriptors)
            answer = self._answer()
        match answer:
            case Forked(pid):
                return pid
            case NotForked(reason):
                raise PreforkLost(f"it could not fork: {reason}")
            case _:
                raise PreforkLost(f"it answered {answer} to a wish to fork")

    def _ask(self, request: Request, descriptors: Sequence[int]) -> None:
        try:
            self._end.settimeout(ANSWER_SECONDS)
            send(self._end, request, descriptors)
        except OSError as error:
            raise PreforkLost(f"it cannot be asked: {error}") from None

    def _answer(self) -> Answer:
        try:
            return ANSWERS.decode(receive(self._end)[0])
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            raise PreforkLost(f"it gave no answer: {str(error) or type(error).__name__}") from None


_own: PreforkClient | None = None


def own_prefork() -> PreforkClient | None:
    """The prefork process of this worker's executors; None if they are started anew."""
    return _own


def use_prefork(client: PreforkClient) -> None:
    global _own
    _own = client


def without_prefork() -> None:
    """Close the prefork process: from now on executors are started anew."""
    global _own
    if _own is not None:
        _own.close()
    _own = None
