"""The threads that run `def` handlers, and their interruption."""

import ctypes
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from penstock.context import Cancelled

_SET_ASYNC = ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
_raise_in_thread = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(_SET_ASYNC)
_call_off_in_thread = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(_SET_ASYNC)


class ThreadWork:
    """A call in a thread, which can be interrupted once while it runs."""

    def __init__(self, call: Callable[[], None], after: Callable[[], None]) -> None:
        self._call = call
        self._after = after
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._interrupted = False

    def run(self) -> None:
        """Make the call, then `after`, which is never interrupted."""
        with suppress(Cancelled):
            with self._lock:
                self._thread = threading.get_ident()
            self._call()
        with suppress(Cancelled):
            self._disarm()
        self._after()

    def interrupt(self) -> None:
        """Raise Cancelled in the thread, as soon as it runs Python code."""
        with self._lock:
            if self._thread is None or self._interrupted:
                return
            self._interrupted = True
            _raise_in_thread(self._thread, Cancelled)

    def _disarm(self) -> None:
        """Prevent further interruptions and cancel a pending one."""
        with self._lock:
            self._thread = None
            if self._interrupted:
                _call_off_in_thread(threading.get_ident(), None)


class Threads:
    """As many daemon threads as there are concurrent calls; they end with the process."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[ThreadWork] = queue.SimpleQueue()
        self._busy = 0
        self._started = 0

    def start(self, work: ThreadWork) -> None:
        """Run the call at once in its own thread; only on the event loop."""
        self._busy += 1
        if self._busy > self._started:
            self._started += 1
            threading.Thread(target=self._serve, name=f"handler-{self._started}", daemon=True).start()
        self._waiting.put(work)

    def ended(self) -> None:
        """Record that a thread is free again; only on the event loop."""
        self._busy -= 1

    def _serve(self) -> None:
        while True:
            self._waiting.get().run()
