"""A run: load, faults, the end, the judgement."""

import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from cluster import report
from cluster.board import Board
from cluster.caller import Caller
from cluster.checker import judge
from cluster.clients import Client, Supply
from cluster.cluster import Cluster
from cluster.consumer import Consumer
from cluster.faults import MOODS, Faults, NotWell
from cluster.mix import requests
from cluster.placement import place
from cluster.records import Tail, events_of
from cluster.recovery import Fault, Harm, measure
from cluster.results import collect_jobs, wait_until_ended
from cluster.sdk_clients import SdkClient
from cluster.server_faults import server_faults

SEED = 2026
SDK_EVERY = 2
PROGRESS_SECONDS = 1.0


class Plan(Struct, frozen=True, kw_only=True):
    """How much load: at least `jobs`, no more than `window` open at once and no more than `rate` a second.

    Without `bars` recoveries are measured and not judged. `told_seconds`: an event that was refused twice is sent again
    after five minutes.
    """

    jobs: int = 50_000
    clients: int = 16
    window: int = 200
    rate: float = 5_000.0
    end_seconds: float = 180.0
    told_seconds: float = 420.0
    bars: bool = True


def run(cluster: Cluster, plan: Plan, say: Callable[[str], None]) -> bool:
    """Whether every promise was kept; what was found goes to `say`."""
    board = Board(cluster.ledger, plan.window)
    supply = Supply(board, plan.jobs, plan.rate, requests(random.Random(SEED)))
    folder = cluster.histories
    folder.mkdir()
    consumer = Consumer(cluster.sink, cluster.port)
    consumer.subscribe()
    clients = [_client(n, cluster.port, supply, board, folder) for n in range(plan.clients)]
    began = time.monotonic()
    harms = _run_load(Faults(cluster, board, supply, consumer), plan, board, supply, clients, say)
    say(f"load over after {time.monotonic() - began:.0f} s; waiting for the last jobs")
    caller = Caller(cluster.port)
    if not wait_until_ended(caller, plan.end_seconds):
        say(f"not all jobs have ended within {plan.end_seconds:g} s")
    ended = time.monotonic()
    say(f"replaying {consumer.replay_refused():,} events that the sink has refused twice")
    if not consumer.wait_until_told(plan.told_seconds):
        say(f"not all events have been delivered within {plan.told_seconds:g} s")
        for line in consumer.stand():
            say(f"  {line}")
    else:
        say(f"all events were delivered {time.monotonic() - ended:.1f} s after the last job")
    jobs = list(collect_jobs(caller))
    caller.close()
    events, ledger = events_of(folder.glob("client*.jsonl")), Tail(cluster.ledger).read()
    deliveries = consumer.judge(jobs)
    verdict, placement = judge(events, ledger, jobs), place(harms, events)
    recoveries, faults = measure(harms, events, ledger), server_faults(api.log for api in cluster.apis)
    for line in report.lines(verdict, placement, recoveries, board.refused, board.unanswered, faults, deliveries):
        say(line)
    quick = all(one.kept for one in recoveries) or not plan.bars
    promised = report.good(verdict, placement, board.refused, faults, deliveries)
    return promised and quick and len(harms) == len(Fault)


def _client(number: int, port: int, supply: Supply, board: Board, folder: Path) -> Client:
    """Make a client; every second one uses the SDK."""
    kind = SdkClient if number % SDK_EVERY == 0 else Client
    return kind(f"client{number}", port, supply, board, folder)


def _run_load(
    faults: Faults, plan: Plan, board: Board, supply: Supply, clients: Sequence[Client], say: Callable[[str], None]
) -> list[Harm]:
    """Run the clients and inflict the faults meanwhile; returns the faults."""
    board.start()
    progress = Progress(board, plan.jobs)
    progress.start()
    for client in clients:
        client.start()
    try:
        return _inflict_faults(faults, board, plan.jobs, progress, say)
    except BaseException:
        supply.stopped.set()
        raise
    finally:
        supply.enough.set()
        for client in clients:
            client.join()
        progress.stop()
        board.stop()


def _inflict_faults(
    faults: Faults, board: Board, jobs: int, progress: "Progress", say: Callable[[str], None]
) -> list[Harm]:
    """Inflict each fault once, spread over the load."""
    harms: list[Harm] = []
    for number, fault in enumerate(Fault, 1):
        wanted = jobs * number // (len(Fault) + 1)
        progress.now = "no fault"
        while not board.wait_for(lambda wanted=wanted: len(board.acknowledged) >= wanted, 1):  # type: ignore[misc]
            pass
        progress.now = fault
        try:
            harms.append(faults.inflict(fault))
        except NotWell as reason:
            say(f"WRONG  {reason}")
            return harms
        say(_recovery_line(harms[-1]))
    progress.now = "no fault"
    return harms


def _recovery_line(harm: Harm) -> str:
    back, well = harm.back_at - harm.at, harm.until - harm.at
    sink = f"meanwhile the sink: {MOODS[harm.fault]}"
    return f"{harm.fault}: answering again after {back:.1f} s, all well after {well:.1f} s; {sink}"


class Progress(threading.Thread):
    """Prints how far the load is, on a terminal only."""

    def __init__(self, board: Board, jobs: int) -> None:
        super().__init__(daemon=True)
        self.now = "no fault"
        self._board = board
        self._jobs = jobs
        self._stopped = threading.Event()

    def run(self) -> None:
        while sys.stderr.isatty() and not self._stopped.wait(PROGRESS_SECONDS):
            board = self._board
            sys.stderr.write(f"\r{len(board.acknowledged):,} of {self._jobs:,} acknowledged, ")
            sys.stderr.write(f"{len(board.ended):,} ended; {self.now}\033[K\r")
            sys.stderr.flush()

    def stop(self) -> None:
        self._stopped.set()
        self.join()
