"""The prefork process: imports the app, then forks workers and executors on request until its owner has ended."""

import atexit
import gc
import logging
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType

from msgspec import Struct

from penstock.app import Penstock
from penstock.config import variable
from penstock.model.clock import SystemClock
from penstock.worker.executor import log_capture
from penstock.worker.executor.loader import UNLOADABLE, describe_app, load_or_explain
from penstock.worker.executor.main import execute, tie_to
from penstock.worker.prefork.client import PreforkClient, use_prefork
from penstock.worker.prefork.protocol import (
    REQUESTS,
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
from penstock.worker.processes import die_with_parent, without_settings
from penstock.worker.protocol import LoadFailed

PID = struct.Struct("!q")


def fork_for_asker(answer: Callable[[int], None]) -> bool:
    """Fork; True in the new process, which is then a child of the asking one. OSError if it cannot fork.

    In this process `answer` is called with the pid once the asking process has adopted it; then it returns False.
    """
    # The new process waits at the gate: its parent has changed only once the intermediate process is reaped.
    gate_out, gate_in = os.pipe()
    number_out, number_in = os.pipe()
    between = os.fork()
    if between == 0:
        if _fork_and_end(number_in) == 0:
            _wait_at_gate(gate_out, gate_in, number_out, number_in)
            return True
        os._exit(0)
    os.close(gate_out)
    os.close(number_in)
    os.waitpid(between, 0)
    number = os.read(number_out, PID.size)
    os.close(number_out)
    os.close(gate_in)
    if len(number) < PID.size:
        raise OSError("there is no room for another process")
    answer(PID.unpack(number)[0])
    return False


def _fork_and_end(number_in: int) -> int:
    """In the intermediate process: fork, report the pid and exit. Returns 0 in the new process."""
    try:
        child = os.fork()
    except OSError:
        os._exit(1)
    if child != 0:
        os.write(number_in, PID.pack(child))
    return child


def _wait_at_gate(gate_out: int, gate_in: int, *others: int) -> None:
    for descriptor in (gate_in, *others):
        os.close(descriptor)
    os.read(gate_out, 1)
    os.close(gate_out)


Handler = Callable[[int, FrameType | None], object] | int | None


class Before(Struct, frozen=True):
    """The state of this process before the app was imported, restored in workers, which run no user code."""

    handlers: Mapping[signal.Signals, Handler]
    environment: Mapping[str, str]

    @classmethod
    def now(cls) -> "Before":
        numbers = map(signal.Signals, signal.valid_signals() & set(signal.Signals))
        return cls({number: signal.getsignal(number) for number in numbers}, dict(os.environ))


def freshen() -> None:
    """Start a new session, reseed random numbers, and drop the exit handlers of the prefork process.

    Exit handlers registered at import belong to that process: a folder that one fork removed would be gone for all.
    """
    os.setsid()
    reseed()
    atexit._clear()  # noqa: SLF001 - what multiprocessing does too; there is no other way
    atexit.register(logging.shutdown)


def reseed() -> None:
    """Reseed numpy. Python reseeds its own `random` at a fork; numpy does not."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def forget_app(before: Before, added: Mapping[str, str]) -> None:
    """Undo the import of the app in a worker, which never uses it; `added` goes into the environment."""
    os.environ.clear()
    os.environ.update({**before.environment, **added})
    for number, handler in before.handlers.items():
        # None is a handler that was not set by Python and cannot be set by it.
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    _reset_logging()


def _reset_logging() -> None:
    logging.disable(logging.NOTSET)
    root = logging.getLogger()
    ours = [one for name, one in root.manager.loggerDict.items() if name.partition(".")[0] == "penstock"]
    for logger in (root, *(one for one in ours if isinstance(one, logging.Logger))):
        logger.handlers.clear()
        logger.filters.clear()
        logger.setLevel(logging.NOTSET)
        logger.disabled, logger.propagate = False, True


DEPLOYED_AT = variable("worker.deployed_at")

Asked = tuple[Request, list[int]]


def serve_prefork(reference: str, end: int, owner: int, work: Callable[[str], None]) -> None:
    """Serve as the prefork process of `owner`. Returns in every forked process too, at the end of its work.

    `work` is the main function of a worker, called with the reference of the app.
    """
    die_with_parent(owner)
    # Forks run the code as imported now, however much later they start.
    deployed_at = SystemClock().now().isoformat()
    before = Before.now()
    control = socket.socket(fileno=end)
    log_capture.install()
    app = _import_or_exit(reference, control)
    asked = _serve(control)
    if asked is not None and isinstance(asked[0], ForkWorker):
        told = asked[0].environment
        _become_worker(
            partial(work, reference), app, before, {**told, DEPLOYED_AT: told.get(DEPLOYED_AT) or deployed_at}
        )


def _import_or_exit(reference: str, control: socket.socket) -> Penstock:
    app = load_or_explain(reference)
    if isinstance(app, LoadFailed):
        send(control, NotImported(app.message, app.traceback))
        sys.exit(UNLOADABLE)
    unsafe = why_unsafe()
    send(control, Imported(describe_app(app), unsafe))
    if unsafe:
        sys.exit()
    # Frozen objects are skipped by garbage collection, so their pages stay shared with every fork.
    gc.collect()
    gc.freeze()
    return app


def why_unsafe() -> str:
    """Why this process cannot be forked safely; empty if it can."""
    if sys.platform != "linux":
        return "forks are adopted by their asker on Linux only"
    if others := [one.name for one in threading.enumerate() if one is not threading.main_thread()]:
        return f"importing the app started threads, which a fork would not have: {', '.join(others)}"
    return ""


def _serve(control: socket.socket) -> Asked | None:
    """Fork on request. Returns its task in a fork, and None in this process once the owner has ended."""
    while True:
        try:
            raw, descriptors = receive(control)
        except (EOFError, OSError):
            return None
        if _fork(partial(send, control)):
            control.close()
            freshen()
            return REQUESTS.decode(raw), descriptors
        for descriptor in descriptors:
            os.close(descriptor)


def _fork(answer: Callable[[Answer], None]) -> bool:
    try:
        return fork_for_asker(lambda pid: answer(Forked(pid)))
    except OSError as error:
        answer(NotForked(str(error)))
        return False


def _become_worker(work: Callable[[], None], app: Penstock, before: Before, added: Mapping[str, str]) -> None:
    """Run a worker with its own prefork process for executors: a fork of this process before it has threads."""
    ours, theirs = socket.socketpair()
    worker = os.getpid()
    if os.fork() == 0:
        ours.close()
        _become_prefork_of(worker, theirs, app, added)
        return
    theirs.close()
    use_prefork(PreforkClient(ours))
    forget_app(before, added)
    work()


def _become_prefork_of(worker: int, control: socket.socket, app: Penstock, added: Mapping[str, str]) -> None:
    freshen()
    die_with_parent(worker)
    os.environ.update(without_settings(added))
    asked = _serve(control)
    if asked is not None and isinstance(asked[0], ForkExecutor):
        end, flags = asked[1]
        tie_to(worker)
        execute(end, flags, asked[0].places, loaded=app)
