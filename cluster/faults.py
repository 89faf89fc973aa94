"""One fault after the other, each followed by a wait until the system is well again."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile

from cluster.board import Board
from cluster.clients import Supply
from cluster.cluster import Cluster
from cluster.recovery import Fault, Harm, shard_of
from servers import Launched, Postgres
from servers.launch import READY_SECONDS

WELL_WITHIN = 90.0
PILE, WAITING = 1000, 50


class NotWell(Exception):
    """The system did not come back in time; the message says from what."""


class Faults:
    """Harms a cluster; what is known of each harm comes back as a record."""

    def __init__(self, cluster: Cluster, board: Board, supply: Supply) -> None:
        self._cluster = cluster
        self._board = board
        self._supply = supply
        self._kinds: Mapping[Fault, Callable[[], Harm]] = {
            Fault.API: self._kill_api,
            Fault.SCHEDULER: self._kill_scheduler,
            Fault.WORKER: self._kill_worker,
            Fault.FLUSH: self._flush_broker,
            Fault.BROKER: self._kill_broker,
            Fault.SHARD: self._kill_shard,
        }

    def inflict(self, fault: Fault) -> Harm:
        """Do it, mend it, and return once all is well; NotWell if that takes too long."""
        harm = self._kinds[fault]()
        self._await_well(harm)
        return Harm(
            fault=fault,
            at=harm.at,
            back_at=harm.back_at,
            worker=harm.worker,
            shard=harm.shard,
            until=time.monotonic(),
        )

    def _kill_api(self) -> Harm:
        api = self._cluster.apis[0]
        at = _kill(api)
        self._go_on(20)
        api.start()
        return Harm(fault=Fault.API, at=at, back_at=time.monotonic())

    def _kill_scheduler(self) -> Harm:
        scheduler = self._cluster.schedulers[0]
        at = _kill(scheduler)
        self._board.wait_for(lambda: time.monotonic() > at + 3, 3)
        scheduler.start()
        return Harm(fault=Fault.SCHEDULER, at=at, back_at=time.monotonic())

    def _kill_worker(self) -> Harm:
        """A worker in the middle of something."""
        worker = self._cluster.workers[0]
        if not self._board.wait_for(lambda: bool(self._board.running(worker.life)), WELL_WITHIN):
            raise NotWell(f"{worker.name} was given no job")
        life = worker.life
        at = _kill(worker)
        worker.start()
        return Harm(fault=Fault.WORKER, at=at, back_at=time.monotonic(), worker=life)

    def _flush_broker(self) -> Harm:
        self._pile_up()
        at = time.monotonic()
        self._cluster.valkey.run("FLUSHALL")
        return Harm(fault=Fault.FLUSH, at=at, back_at=time.monotonic())

    def _kill_broker(self) -> Harm:
        self._pile_up()
        at = _kill(self._cluster.valkey)
        self._cluster.valkey.start()
        return Harm(fault=Fault.BROKER, at=at, back_at=time.monotonic())

    def _kill_shard(self) -> Harm:
        number = 1
        shard = self._cluster.shards[number]
        at = _kill(shard)
        _start_again(shard)
        return Harm(fault=Fault.SHARD, at=at, back_at=time.monotonic(), shard=number)

    def _pile_up(self) -> None:
        """So that tickets are out when they are lost."""
        self._supply.hurry(PILE)
        if not self._board.wait_for(lambda: len(self._board.waiting) >= WAITING, WELL_WITHIN):
            raise NotWell("the load is too small to keep jobs waiting")

    def _go_on(self, jobs: int) -> None:
        """Wait until so many more jobs are acknowledged."""
        board = self._board
        wanted = len(board.acknowledged) + jobs
        if not board.wait_for(lambda: len(board.acknowledged) >= wanted, WELL_WITHIN):
            raise NotWell("submits are not acknowledged any more")

    def _await_well(self, harm: Harm) -> None:
        """Well: who waited has begun, every shard has ended a job that is newer, and nobody waits for a dead worker."""
        board, waited = self._board, self._board.waiting
        if not board.wait_for(lambda: waited.isdisjoint(board.waiting), WELL_WITHIN):
            raise NotWell(f"{harm.fault}: {len(waited & board.waiting)} jobs that waited were not started")
        if not board.wait_for(lambda: self._all_shards_work_since(harm.back_at), WELL_WITHIN):
            raise NotWell(f"{harm.fault}: not every shard has finished new jobs within {WELL_WITHIN:g} s")
        if harm.worker and not board.wait_for(lambda: not board.running(harm.worker or ""), WELL_WITHIN):
            raise NotWell(f"{harm.fault}: {len(board.running(harm.worker))} of its jobs were not started again")

    def _all_shards_work_since(self, moment: float) -> bool:
        newest_first = reversed(self._board.acknowledged.values())
        recent = takewhile(lambda told: told[1] > moment, newest_first)
        done = {shard_of(job) for job, _ in recent if job in self._board.ended}
        return len(done) == len(self._cluster.shards)


def _kill(server: Launched) -> float:
    """kill -9, and when. The whole group at once, as if the machine had gone."""
    at = time.monotonic()
    server.kill()
    return at


def _start_again(shard: Postgres) -> None:
    """After a kill its other processes take a moment to notice, and until then it refuses to start."""
    deadline = time.monotonic() + READY_SECONDS
    while not shard.alive and time.monotonic() < deadline:
        with suppress(RuntimeError):
            shard.start()
