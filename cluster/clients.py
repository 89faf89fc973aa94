"""Clients: threads that ask for what the mix says, and write down what they asked and what they were told."""

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cluster.board import Board
from cluster.caller import Answer, Broken, Caller
from cluster.mix import Kind, Request, Wish
from cluster.records import Call, Event, History, Phase

AGAIN_SECONDS = 0.5
FAULT = 500
READS = 0.02
"""The share of acknowledged jobs that a client then waits for a moment."""

Step = Callable[[], None]


class Supply:
    """Hands the requests of the mix to all clients: at least `jobs`, and more until it is told that it is enough."""

    def __init__(self, board: Board, jobs: int, rate: float, wanted: Iterator[Request]) -> None:
        self._requests = wanted
        self._board = board
        self._jobs = jobs
        self._rate = rate
        self._given = 0
        self._allowance = 0
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._pause = threading.Event()
        self.enough = threading.Event()
        self.stopped = threading.Event()

    @property
    def over(self) -> bool:
        return self.stopped.is_set() or (self.enough.is_set() and self._given >= self._jobs)

    def hurry(self, jobs: int) -> None:
        """Let so many be asked for at once, whatever the rate."""
        with self._lock:
            self._allowance += jobs

    def next(self) -> Request | None:
        """One request; None when it is not time for another."""
        if not self._board.room(0.1):
            return None
        with self._lock:
            if self.over:
                return None
            if self._given > self._allowance + (time.monotonic() - self._began) * self._rate:
                self._pause.wait(0.005)
                return None
            request = next(self._requests)
            self._given += len(request)
            return request


class Client(threading.Thread):
    """Sends requests. While one waits to be repeated, others are sent: a shard that is down delays only its own."""

    def __init__(self, name: str, port: int, supply: Supply, board: Board, folder: Path) -> None:
        super().__init__(name=name, daemon=True)
        self.history = History(folder / f"{name}.jsonl")
        self._caller = Caller(port)
        self._supply = supply
        self._board = board
        self._rng = random.Random(name)
        self._later: list[tuple[float, int, Step]] = []
        self._order = itertools.count()
        self._pause = threading.Event()

    def run(self) -> None:
        try:
            while not self._supply.stopped.is_set() and (self._later or not self._supply.over):
                self._step()
        finally:
            self._caller.close()
            self.history.close()

    def _step(self) -> None:
        if self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()
        elif request := self._supply.next():
            self._submit(request)
        else:
            self._pause.wait(0.01)

    def _again(self, step: Step) -> None:
        heapq.heappush(self._later, (time.monotonic() + AGAIN_SECONDS, next(self._order), step))

    def _submit(self, wishes: Request) -> None:
        for wish in wishes:
            self._write(Phase.INVOKE, Call.SUBMIT, wish.n, delay=wish.delay)
        answer = self._call("POST", *_request_of(wishes))
        unanswered = [
            wish for wish, one in zip(wishes, _each(answer, wishes), strict=True) if not self._record(wish, one)
        ]
        if unanswered:
            self._again(lambda: self._submit(tuple(unanswered)))

    def _record(self, wish: Wish, answer: Answer | None) -> bool:
        """Write the answer to the history; True if the wish needs no other request."""
        if answer is not None and answer.ok:
            self._acknowledge(wish, answer.body)
            return True
        status = answer.status if answer else None
        if status is not None and 400 <= status < 500:
            self._write(Phase.FAIL, Call.SUBMIT, wish.n, status=status)
            self._board.refuse(f"submit of order {wish.n}: {answer and answer.body}")
            return True
        self._write(Phase.INFO, Call.SUBMIT, wish.n, status=status)
        self._report_fault(f"submit of order {wish.n}", answer)
        if not wish.keyed:
            self._board.miss()
        return not wish.keyed

    def _acknowledge(self, wish: Wish, item: dict[str, object], request: str | None = None) -> None:
        job = str(item["id"])
        self._write(Phase.OK, Call.SUBMIT, wish.n, item=item, delay=wish.delay, request=request)
        self._board.acknowledge(wish.n, job, awaited=not wish.delay and wish.kind is not Kind.CANCEL)
        if wish.kind is Kind.CANCEL:
            self._ask(Call.CANCEL, wish.n, "POST", f"/v1/jobs/{job}/cancel")
        elif self._rng.random() < READS:
            self._ask(Call.READ, wish.n, "GET", f"/v1/jobs/{job}?wait=1")

    def _ask(self, call: Call, n: int, method: str, path: str) -> None:
        """Cancel or read a job; repeated until it is answered, which does no harm."""
        self._write(Phase.INVOKE, call, n)
        answer = self._call(method, path)
        if answer is not None and answer.ok:
            self._write(Phase.OK, call, n, item=answer.body)
            return
        self._write(Phase.INFO, call, n, status=answer.status if answer else None)
        if answer is not None and 400 <= answer.status < 500:
            self._board.refuse(f"{call} of order {n}: {answer.body}")
        else:
            self._report_fault(f"{call} of order {n}", answer)
            self._again(lambda: self._ask(call, n, method, path))

    def _report_fault(self, what: str, answer: Answer | None) -> None:
        """An outage is answered 503, and what is behind a proxy 502 or 504: 500 is a fault, though it is repeated."""
        if answer is not None and answer.status == FAULT:
            self._board.refuse(f"{what} was answered {FAULT}: {answer.body}")

    def _call(self, method: str, path: str, body: object = None, key: str | None = None) -> Answer | None:
        try:
            return self._caller.call(method, path, body, {"Idempotency-Key": key} if key else None)
        except Broken:
            return None

    def _write(
        self,
        phase: Phase,
        call: Call,
        n: int,
        *,
        item: dict[str, object] | None = None,
        status: int | None = None,
        delay: float = 0.0,
        request: str | None = None,
        shard: int | None = None,
    ) -> None:
        known = item or {}
        event = Event(
            phase=phase,
            call=call,
            n=n,
            at=time.monotonic(),
            job=_text(known.get("id")),
            state=_text(known.get("state")),
            fence=fence if isinstance(fence := known.get("fence"), int) else None,
            status=status,
            delay=delay,
            request=request,
            shard=shard,
        )
        self.history.write(event)


def _request_of(wishes: Request) -> tuple[str, object, str | None]:
    """Path, body and key header of a request."""
    if len(wishes) == 1:
        (wish,) = wishes
        return "/v1/jobs", wish.body(), wish.key if wish.keyed else None
    return "/v1/jobs/batch", {"jobs": [{**wish.body(), "idempotency_key": wish.key} for wish in wishes]}, None


def _each(answer: Answer | None, wishes: Request) -> Sequence[Answer | None]:
    """An answer for each wish of a request."""
    if answer is None or not answer.ok or len(wishes) == 1:
        return [answer] * len(wishes)
    return [Answer(item["problem"]["status"] if "problem" in item else 200, item) for item in answer.body["jobs"]]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
