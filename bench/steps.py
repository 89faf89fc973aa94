"""The measurements. Each is one step: empty the system, act, and return numbers; nothing is left running afterwards."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import peer_servers
from catalog import Peer
from places import Places
from processes import StepFailed, child, output_of
from startlog import StartLog, anomaly, latency_ms, rate_per_second

COMMAND_SECONDS = 300.0
DRAIN_SECONDS = 60.0
IDLE_SECONDS = 15.0
GROWTH_SECONDS = 8.0
CALLERS = 64
LATENCY_STEP_SECONDS = 0.02
SETTLE_SECONDS = 1.0
WARM_UP_JOBS = 10


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much work a step does; `jobs` replaces the catalogue's numbers."""

    jobs: int | None
    callers_seconds: float
    latency_seconds: float
    growth_ready: int
    growth_queued: int
    growth_scheduled: int


NORMAL = Amounts(
    None, callers_seconds=5, latency_seconds=6, growth_ready=10_000, growth_queued=200_000, growth_scheduled=100_000
)
QUICK = Amounts(
    500, callers_seconds=1, latency_seconds=1, growth_ready=500, growth_queued=5_000, growth_scheduled=5_000
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of one step by name (rates in jobs/s, latencies in ms), and what was odd about it."""

    numbers: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bench:
    """A peer ready to be measured."""

    peer: Peer
    command: list[str]
    places: Places

    @property
    def started(self) -> StartLog:
        return StartLog(self.places.started)

    @contextlib.contextmanager
    def emptied(self) -> Iterator["Bench"]:
        """The peer with nothing in its store; its own server, if it has one, runs meanwhile."""
        with contextlib.ExitStack() as stack:
            places = self.places
            if self.peer.own_server:
                places = stack.enter_context(peer_servers.own(self.command, self.peer.name, places))
            ready = Bench(self.peer, self.command, places)
            ready.ask("reset")
            ready.started.clear()
            yield ready

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        log = self.places.logs / f"{self.peer.name}-worker.log"
        with child([*self.command, "worker"], env=self.places.environ(), log=log, cwd=self.places.source):
            yield

    def ask(self, *words: object) -> dict[str, float]:
        """The adapter's answer to a command. Raises StepFailed."""
        command = [*self.command, *map(str, words)]
        log = self.places.logs / f"{self.peer.name}.log"
        printed = output_of(
            command, env=self.places.environ(), log=log, timeout=COMMAND_SECONDS, cwd=self.places.source
        )
        answers = [line for line in printed.splitlines() if line.startswith("{")]
        if not answers:
            raise StepFailed(f"{self.peer.name} {words[0]}: no answer: see {log}")
        return dict(json.loads(answers[-1]))

    def load(self, jobs: int) -> None:
        """Put jobs in by the bulk call, or one by one where there is none."""
        if "unsupported" in self.ask("bulk", jobs):
            self.ask("enqueue", jobs)


def enqueue(bench: Bench, amounts: Amounts) -> Outcome:
    """Single calls of one producer."""
    with bench.emptied() as ready:
        return Outcome({"enqueue": _rate(ready.ask("enqueue", amounts.jobs or bench.peer.enqueue_jobs))})


def callers(bench: Bench, amounts: Amounts) -> Outcome:
    """Single calls of many callers at once; no number for a peer where that is not measured."""
    with bench.emptied() as ready:
        answer = ready.ask("callers", CALLERS, amounts.callers_seconds)
        return Outcome() if "unsupported" in answer else Outcome({"callers": _rate(answer)})


def bulk(bench: Bench, amounts: Amounts) -> Outcome:
    """The bulk call with 1000 jobs each; no number for a peer that has none."""
    with bench.emptied() as ready:
        answer = ready.ask("bulk", amounts.jobs or bench.peer.drain_jobs)
        return Outcome() if "unsupported" in answer else Outcome({"bulk": _rate(answer)})


def drain(bench: Bench, amounts: Amounts) -> Outcome:
    """A worker that starts on a full queue."""
    jobs = amounts.jobs or bench.peer.drain_jobs
    with bench.emptied() as ready:
        ready.load(jobs)
        with ready.worker():
            ready.started.wait_for(jobs, within=DRAIN_SECONDS, idle=IDLE_SECONDS)
        return _drained(ready, "drain", jobs)


def latency(bench: Bench, amounts: Amounts) -> Outcome:
    """Jobs that come one by one to an idle worker."""
    with bench.emptied() as ready, ready.worker():
        ready.ask("latency", WARM_UP_JOBS * LATENCY_STEP_SECONDS, LATENCY_STEP_SECONDS)
        ready.started.wait_for(WARM_UP_JOBS, within=DRAIN_SECONDS, idle=IDLE_SECONDS)
        time.sleep(SETTLE_SECONDS)
        ready.started.clear()
        jobs = int(ready.ask("latency", amounts.latency_seconds, LATENCY_STEP_SECONDS)["n"])
        ready.started.wait_for(jobs, within=DRAIN_SECONDS, idle=IDLE_SECONDS)
        starts = ready.started.starts()
    found = {"p50": latency_ms(starts, 0.5), "p99": latency_ms(starts, 0.99)}
    return _outcome(found, anomaly(starts, jobs))


def growth(bench: Bench, amounts: Amounts) -> Outcome:
    """The drain rate with few jobs, with many queued, and with few behind many that are due in an hour."""
    cases = {
        "few": (amounts.growth_ready, 0),
        "queued": (amounts.growth_queued, 0),
        "scheduled": (amounts.growth_ready, amounts.growth_scheduled),
    }
    outcomes = [_growth(bench, name, ready, later) for name, (ready, later) in cases.items()]
    numbers = {name: number for outcome in outcomes for name, number in outcome.numbers.items()}
    return Outcome(numbers, tuple(note for outcome in outcomes for note in outcome.notes))


def _growth(bench: Bench, name: str, jobs: int, later: int) -> Outcome:
    with bench.emptied() as ready:
        if later and "unsupported" in ready.ask("later", later):
            return Outcome()
        ready.load(jobs)
        with ready.worker():
            ready.started.wait_for(1, within=DRAIN_SECONDS, idle=DRAIN_SECONDS)
            ready.started.wait_for(jobs, within=GROWTH_SECONDS, idle=GROWTH_SECONDS)
        # Most of the many are left on purpose: only the first seconds are wanted.
        return _outcome({name: rate_per_second(ready.started.starts())}, "")


def _drained(ready: Bench, name: str, jobs: int) -> Outcome:
    starts = ready.started.starts()
    return _outcome({name: rate_per_second(starts)}, anomaly(starts, jobs))


def _outcome(found: dict[str, float | None], note: str) -> Outcome:
    numbers = {name: number for name, number in found.items() if number is not None}
    missing = tuple(f"no {name}: no job started in time" for name in found.keys() - numbers.keys())
    return Outcome(numbers, (note,) * bool(note) + missing)


def _rate(answer: dict[str, float]) -> float:
    return answer["n"] / answer["seconds"]


PARTS = {"enqueue": enqueue, "callers": callers, "bulk": bulk, "drain": drain, "latency": latency, "growth": growth}
