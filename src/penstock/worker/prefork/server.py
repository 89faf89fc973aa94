"""The template process: imports the app, says so, and then forks what it is asked for until the asker is gone."""

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
    """Fork; True in the new process, which is the asker's child by then. OSError if it cannot be.

    In this one `answer` is called with its number, once the asker has adopted it, and then False returned.
    """
    # The new process waits behind the gate: only when the one in between is reaped has its parent changed for sure.
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
    """In the process between: 0 in the new one; in itself, the number it has told on."""
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
    """How this process was before the app was imported, to be had again where no user code is to run."""

    handlers: Mapping[signal.Signals, Handler]
    environment: Mapping[str, str]

    @classmethod
    def now(cls) -> "Before":
        numbers = map(signal.Signals, signal.valid_signals() & set(signal.Signals))
        return cls({number: signal.getsignal(number) for number in numbers}, dict(os.environ))


def freshen() -> None:
    """A session of its own, random numbers of its own, and none of the template's duties at exit.

    What was registered at import is the template's to clean up: a folder that one fork removed would be gone for all.
    """
    os.setsid()
    reseed()
    atexit._clear()  # noqa: SLF001 - what multiprocessing does too; there is no other way
    atexit.register(logging.shutdown)


def reseed() -> None:
    """Other numbers than the template's next ones. Python sees to its own `random` at a fork; numpy does not."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def forget_app(before: Before, added: Mapping[str, str]) -> None:
    """For a worker, in which the app is imported and never used: as if it were not, with `added` to the environment."""
    os.environ.clear()
    os.environ.update({**before.environment, **added})
    for number, handler in before.handlers.items():
        # None stands for a handler that was not set from Python, which cannot be set from here either.
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
    """Be a template of the app, for `owner`. Returns in every process that comes of it, when its life is over.

    `work` is what a worker does with the app's reference; nothing else can be asked for.
    """
    die_with_parent(owner)
    # Whatever is forked from here runs the code of now, however much later it starts.
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
    # What is frozen is never looked at by a collection, so its pages stay shared with every fork.
    gc.collect()
    gc.freeze()
    return app


def why_unsafe() -> str:
    """Why a fork of this process could not be trusted; empty if it can."""
    if sys.platform != "linux":
        return "forks are adopted by their asker on Linux only"
    if others := [one.name for one in threading.enumerate() if one is not threading.main_thread()]:
        return f"importing the app started threads, which a fork would not have: {', '.join(others)}"
    return ""


def _serve(control: socket.socket) -> Asked | None:
    """Fork what is asked for. In a fork: what it is to be. In the template: None, once the asker has gone."""
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
    """Work, with a template of its own to fork executors from: this process as it is now, when it has no threads."""
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
        end, marks = asked[1]
        tie_to(worker)
        execute(end, marks, asked[0].places, loaded=app)
