"""What is known while the load runs: which jobs were acknowledged, started and ended, and which are awaited."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from cluster.records import Entry, Mark, Tail

LOOK_SECONDS = 0.05


class Board:
    """Shared by all threads. The ledger is followed from `start` to `stop`."""

    def __init__(self, ledger: Path, window: int) -> None:
        self.acknowledged: dict[int, tuple[str, float]] = {}
        self.started: set[str] = set()
        self.ended: set[str] = set()
        self.unanswered = 0
        self.sdk_requests = 0
        self.refused: list[str] = []
        self._window = window
        self._open: set[str] = set()
        self._running: dict[str, Entry] = {}
        self._tail = Tail(ledger)
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._follower = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._follower.start()

    def stop(self) -> None:
        self._stopped.set()
        self._follower.join()

    def acknowledge(self, n: int, job: str, *, awaited: bool) -> None:
        """An awaited job takes a place in the window until it ends."""
        with self._changed:
            self.acknowledged.setdefault(n, (job, time.monotonic()))
            if awaited and job not in self.ended:
                self._open.add(job)
            self._changed.notify_all()

    def refuse(self, what: str) -> None:
        with self._changed:
            self.refused.append(what)

    def miss(self) -> None:
        with self._changed:
            self.unanswered += 1

    def count_sdk_request(self) -> None:
        with self._changed:
            self.sdk_requests += 1
            self._changed.notify_all()

    def room(self, seconds: float) -> bool:
        """Wait until fewer jobs than the window are open; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._open) < self._window, seconds)

    @property
    def open_jobs(self) -> set[str]:
        """Acknowledged jobs in the window that have not ended."""
        with self._changed:
            return set(self._open)

    @property
    def waiting(self) -> set[str]:
        """Acknowledged jobs in the window that have not begun."""
        with self._changed:
            return {job for job in self._open if job not in self.started}

    def wait_for(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait until `true`, which may look at this board, or for so many seconds; whether it is."""
        with self._changed:
            return self._changed.wait_for(true, seconds)

    def running(self, worker: str) -> set[str]:
        """Jobs that a worker has begun and not ended."""
        with self._changed:
            return {job for job, entry in self._running.items() if entry.worker == worker}

    def at_work(self) -> set[str]:
        """Workers that have begun jobs and not ended them."""
        with self._changed:
            return {entry.worker for entry in self._running.values()}

    def _follow(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self._take(self._tail.read())

    def _take(self, fresh: list[Entry]) -> None:
        with self._changed:
            for entry in fresh:
                self._note(entry)
            if fresh:
                self._changed.notify_all()

    def _note(self, entry: Entry) -> None:
        if entry.mark is Mark.START:
            self.started.add(entry.job)
            self._running[entry.job] = entry
            return
        if (begun := self._running.get(entry.job)) and begun.fence == entry.fence:
            del self._running[entry.job]
        if entry.mark is Mark.END:
            self.ended.add(entry.job)
            self._open.discard(entry.job)
