"""A template, as whoever asks it sees it. Every call blocks, for milliseconds once the app is imported."""

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
from penstock.worker.processes import adopting

ANSWER_SECONDS = 10.0
"""A fork takes milliseconds; a template that says nothing for this long is as good as dead."""


class PreforkLost(Exception):
    """The template gave no answer, or could not fork. What it may have forked ends by itself."""


class PreforkClient:
    """One end of the line to a template process; from any thread, one question at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._one_at_a_time = Lock()

    def imported(self, seconds: float) -> Imported | NotImported:
        """The first thing it says; ask once."""
        self._end.settimeout(seconds)
        answer = self._answer()
        if not isinstance(answer, Imported | NotImported):
            raise PreforkLost(f"it answered {answer} before anything else")
        return answer

    def fork_worker(self, environment: Mapping[str, str]) -> int:
        """A worker with this environment beside the template's own; its process number. A child of this process."""
        return self._fork(ForkWorker(environment))

    def fork_executor(self, end: int, marks: int, places: int) -> int:
        """An executor with copies of these descriptors; its process number. A child of this process."""
        return self._fork(ForkExecutor(places), (end, marks))

    def close(self) -> None:
        """Let it end. Whoever waits for an answer in another thread gets none."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()

    def _fork(self, request: Request, descriptors: Sequence[int] = ()) -> int:
        with self._one_at_a_time, adopting():
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
    """What this process's executors are forked from; None: they are started anew."""
    return _own


def use_prefork(template: PreforkClient) -> None:
    global _own
    _own = template


def without_prefork() -> None:
    """Let go of it: executors are started anew from now on."""
    global _own
    if _own is not None:
        _own.close()
    _own = None
