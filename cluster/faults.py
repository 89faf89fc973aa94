"""One fault after the other, each followed by a wait until the system is well again."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TypeVar

from cluster.board import Board
from cluster.clients import Supply
from cluster.cluster import Cluster, shard_url
from cluster.consumer import Consumer, NotMet
from cluster.recovery import Fault, Harm, shard_of
from cluster.sdk_clients import PATIENCE_SECONDS
from cluster.sink import Mood
from penstock import Client as Sdk
from penstock.model.shards import ShardState
from servers import Launched, Postgres
from servers.launch import READY_SECONDS, wait_until

WELL_WITHIN = 90.0
PILE, WAITING = 1000, 50
DEAD_SECONDS = PATIENCE_SECONDS + 3
SHARE_REQUESTS, DRAINED_REQUESTS = 150, 50
"""So many requests of the SDK tell what part of them a shard gets, and that it gets none."""

MOODS = {
    Fault.API: Mood.DOWN,
    Fault.SCHEDULER: Mood.SLOW,
    Fault.WORKER: Mood.ERROR,
    Fault.FLUSH: Mood.GONE,
    Fault.BROKER: Mood.HANG,
    Fault.SCHEDULERS: Mood.SLOW,
    Fault.SHARD: Mood.GIGABYTE,
    Fault.DEAD: Mood.REDIRECT,
    Fault.ADD: Mood.WELL,
    Fault.DRAIN: Mood.SLOW,
    Fault.FREEZE: Mood.ERROR,
}
"""How the sink of webhooks answers during each fault. One that fails is followed by one that can be delivered to: the
relays probe a sink that goes on failing ever more rarely."""

T = TypeVar("T")


class NotWell(Exception):
    """The system did not come back in time; the message says from what."""


class Faults:
    """Harms a cluster; what is known of each harm comes back as a record."""

    def __init__(self, cluster: Cluster, board: Board, supply: Supply, consumer: Consumer) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._board = board
        self._supply = supply
        self._operator = Sdk(f"http://127.0.0.1:{cluster.port}")
        self._kinds: Mapping[Fault, Callable[[], Harm]] = {
            Fault.API: self._kill_api,
            Fault.SCHEDULER: self._kill_scheduler,
            Fault.WORKER: self._kill_worker,
            Fault.FLUSH: self._flush_broker,
            Fault.BROKER: self._kill_broker,
            Fault.SCHEDULERS: self._kill_schedulers,
            Fault.SHARD: self._kill_shard,
            Fault.DEAD: self._leave_shard_dead,
            Fault.ADD: self._add_shard,
            Fault.DRAIN: self._drain_shard,
            Fault.FREEZE: self._freeze_primary,
        }
        self._working = set(range(len(cluster.shards)))

    def inflict(self, fault: Fault) -> Harm:
        """Do it, mend it, and return once all is well; NotWell if that takes too long."""
        try:
            with self._consumer.suffer(MOODS[fault]):
                harm = self._kinds[fault]()
                self._await_well(harm)
        except NotMet as reason:
            raise NotWell(f"{fault}: {reason}") from None
        if fault is Fault.FREEZE:
            self._cluster.shards[harm.shard or 0].stop()
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
        self._await_acknowledged(20)
        api.start()
        return Harm(fault=Fault.API, at=at, back_at=time.monotonic())

    def _kill_scheduler(self) -> Harm:
        scheduler = self._cluster.schedulers[0]
        at = _kill(scheduler)
        self._board.wait_for(lambda: time.monotonic() > at + 3, 3)
        scheduler.start()
        return Harm(fault=Fault.SCHEDULER, at=at, back_at=time.monotonic())

    def _kill_schedulers(self) -> Harm:
        """All of them, and every relay with them, in the middle of deliveries."""
        schedulers = self._cluster.schedulers
        at = min(_kill(one) for one in schedulers)
        for one in schedulers:
            one.start()
        return Harm(fault=Fault.SCHEDULERS, at=at, back_at=time.monotonic())

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
        self._build_backlog()
        at = time.monotonic()
        self._cluster.valkey.run("FLUSHALL")
        return Harm(fault=Fault.FLUSH, at=at, back_at=time.monotonic())

    def _kill_broker(self) -> Harm:
        self._build_backlog()
        at = _kill(self._cluster.valkey)
        self._cluster.valkey.start()
        return Harm(fault=Fault.BROKER, at=at, back_at=time.monotonic())

    def _kill_shard(self) -> Harm:
        number = 1
        shard = self._cluster.shards[number]
        at = _kill(shard)
        _start_again(shard)
        return Harm(fault=Fault.SHARD, at=at, back_at=time.monotonic(), shard=number)

    def _leave_shard_dead(self) -> Harm:
        """For longer than a client of the SDK waits."""
        number = 2
        shard = self._cluster.shards[number]
        at = _kill(shard)
        self._board.wait_for(lambda: time.monotonic() > at + DEAD_SECONDS, DEAD_SECONDS)
        _start_again(shard)
        return Harm(fault=Fault.DEAD, at=at, back_at=time.monotonic(), shard=number)

    def _add_shard(self) -> Harm:
        spare = _require(self._cluster.spare)
        number = self._operator.add_shard(shard_url(spare.port)).number
        at = time.monotonic()
        back_at = self._await_map(number, ShardState.ACTIVE)
        self._working.add(number)
        self._await_sdk_requests(SHARE_REQUESTS)
        return Harm(fault=Fault.ADD, at=at, back_at=back_at, shard=number)

    def _drain_shard(self) -> Harm:
        number = max(self._working)
        self._operator.update_shard(number, state=ShardState.DRAINING)
        at = time.monotonic()
        back_at = self._await_map(number, ShardState.DRAINING)
        self._working.remove(number)
        self._await_sdk_requests(DRAINED_REQUESTS)
        return Harm(fault=Fault.DRAIN, at=at, back_at=back_at, shard=number)

    def _freeze_primary(self) -> Harm:
        """The old primary stays frozen, and is killed once all is well: it must never take a write again."""
        number = 0
        at = time.monotonic()
        self._cluster.shards[number].pause()
        _require(self._cluster.standby).promote()
        return Harm(fault=Fault.FREEZE, at=at, back_at=time.monotonic(), shard=number)

    def _await_map(self, number: int, state: ShardState) -> float:
        """Wait until every API has read of this; when that was."""
        for api in self._cluster.apis:
            with Sdk(f"http://127.0.0.1:{api.port}") as client:
                wait_until(partial(_shows, client, number, state), f"{api.name} does not show shard {number} {state}")
        return time.monotonic()

    def _await_sdk_requests(self, requests: int) -> None:
        """Wait until clients of the SDK have made so many more requests."""
        board = self._board
        wanted = board.sdk_requests + requests
        if not board.wait_for(lambda: board.sdk_requests >= wanted, WELL_WITHIN):
            raise NotWell("submits of the SDK are not acknowledged any more")

    def _build_backlog(self) -> None:
        """Keep jobs waiting, so that there are tickets to lose."""
        self._supply.hurry(PILE)
        if not self._board.wait_for(lambda: len(self._board.waiting) >= WAITING, WELL_WITHIN):
            raise NotWell("the load is too small to keep jobs waiting")

    def _await_acknowledged(self, jobs: int) -> None:
        """Wait until so many more jobs are acknowledged."""
        board = self._board
        wanted = len(board.acknowledged) + jobs
        if not board.wait_for(lambda: len(board.acknowledged) >= wanted, WELL_WITHIN):
            raise NotWell("submits are not acknowledged any more")

    def _await_well(self, harm: Harm) -> None:
        """Wait until the waiting jobs and those of a dead worker have begun, and every shard has ended a newer job."""
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
        return done >= self._working


def _kill(server: Launched) -> float:
    """kill -9, and when. The whole group at once, as if the machine had gone."""
    at = time.monotonic()
    server.kill()
    return at


def _require(server: T | None) -> T:
    if server is None:
        raise ValueError("this cluster lacks what the fault needs: start it with everything")
    return server


def _shows(client: Sdk, number: int, state: ShardState) -> bool:
    return any(shard.number == number and shard.state is state and shard.well for shard in client.shards())


def _start_again(shard: Postgres) -> None:
    """After a kill its other processes take a moment to notice, and until then it refuses to start."""
    deadline = time.monotonic() + READY_SECONDS
    while not shard.alive and time.monotonic() < deadline:
        with suppress(RuntimeError):
            shard.start()
