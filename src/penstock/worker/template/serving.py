"""The template process: imports the app, says so, and then forks what it is asked for until the asker is gone."""

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial

from penstock.app import Penstock
from penstock.config import variable
from penstock.model.timing import SystemClock
from penstock.worker.environment import without_settings
from penstock.worker.executor import capture
from penstock.worker.executor.loading import UNLOADABLE, describe_app, load_or_explain
from penstock.worker.executor.process import execute, tie_to
from penstock.worker.frames import LoadFailed
from penstock.worker.mortality import die_with_parent
from penstock.worker.template.asking import PreforkClient
from penstock.worker.template.forking import fork_for_asker
from penstock.worker.template.frames import (
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
from penstock.worker.template.fresh import Before, forget_app, freshen
from penstock.worker.template.own import use_prefork

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
    capture.install()
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
