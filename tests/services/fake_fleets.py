"""Fleets in memory whose workers run jobs of a real engine, and a simulation that steps them with a simulated clock."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from penstock.autoscaler.backends import Condition, FleetMember, LaunchSpec
from penstock.autoscaler.loop import Autoscaler
from penstock.engine import Engine
from penstock.model.declarations import signature_of
from penstock.model.errors import FleetUnavailable
from penstock.model.job import Claim, ErrorCode, JobError, Lease
from penstock.model.lifecycle import State
from penstock.model.workers import JobType, Worker, WorkerState, WorkRequest
from penstock.testing.clock import SimulatedClock
from tests.services.engine_steps import ZERO, dispatcher, failure, success

UNFIT = JobError(ErrorCode.INVALID_PARAMS, "params do not fit", retryable=False)
TICK = timedelta(milliseconds=500)
HEARTBEAT = timedelta(seconds=5)
APP = "shop:app"


class FakeWorker:
    """One worker: joins after a while, takes jobs, takes time for each, and drains when it is asked to."""

    def __init__(self, name: str, order: LaunchSpec, started_at: datetime) -> None:
        self.name = name
        self.order = order
        self.started_at = started_at
        self.condition = Condition.STARTING
        self.exit_status: int | None = None
        self.jobs: list[tuple[Claim, datetime]] = []
        self.seen_at: datetime | None = None
        self.asked_while_busy = False

    @property
    def member(self) -> FleetMember:
        return FleetMember(
            name=self.name, condition=self.condition, started_at=self.started_at, exit_status=self.exit_status
        )

    def end(self, status: int) -> None:
        self.condition, self.exit_status = Condition.ENDED, status


class FakeFleets:
    """Keeps the Fleets protocol in memory. `startup` and `service` are how long things take; `broken` starts fail.

    With a `host` its members are processes there, which the backend of another host does not list. `types` are those
    that its workers have; None: those of the world.
    """

    def __init__(
        self,
        clock: SimulatedClock,
        *,
        startup: float = 2.0,
        service: float = 1.0,
        capacity: int = 2,
        host: str = "",
        app: str = APP,
        types: Sequence[JobType] | None = None,
    ) -> None:
        self.clock = clock
        self.host = host
        self.app = app
        self.types = types
        self.startup = timedelta(seconds=startup)
        self.service = timedelta(seconds=service)
        self.capacity = capacity
        self.broken = False
        self.mute = False
        self.misfits = b""
        self.down = False
        self.external: int | None = None
        self.workers: dict[str, FakeWorker] = {}
        self.orders: list[tuple[LaunchSpec, int]] = []
        self.stops: list[tuple[str, timedelta | None]] = []
        self.most = 0

    async def start(self, order: LaunchSpec, count: int) -> list[str]:
        self._check()
        self.orders.append((order, count))
        names = [f"{order.fleet}-{self.host}{len(self.workers) + number}" for number in range(count)]
        self.workers |= {name: FakeWorker(name, order, self.clock.now()) for name in names}
        self.most = max(self.most, len(self.alive()))
        return names

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        self._check()
        for name in names:
            self.stops.append((name, patience))
            worker = self.workers[name]
            worker.asked_while_busy = bool(worker.jobs)
            worker.condition = Condition.ENDING

    async def members(self, fleet: str) -> list[FleetMember]:
        self._check()
        found = [worker.member for worker in self.workers.values() if worker.order.fleet == fleet]
        for member in found:
            if member.condition is Condition.ENDED:
                self.workers[member.name].order = replace(self.workers[member.name].order, fleet="(told)")
        return found

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        return [name for name in workers if self.host and name.startswith(f"{fleet}-") and name not in self.workers]

    async def external_count(self, fleet: str) -> int | None:
        return self.external

    async def stand_by(self) -> None:
        for worker in self.alive() if self.host else ():
            worker.condition = Condition.ENDING

    async def close(self) -> None: ...

    def alive(self, fleet: str | None = None) -> list[FakeWorker]:
        return [
            worker
            for worker in self.workers.values()
            if worker.condition is not Condition.ENDED and fleet in (None, worker.order.fleet)
        ]

    def _check(self) -> None:
        if self.down:
            raise FleetUnavailable("the place where workers run does not answer")

    # -- what the workers do

    async def work(self, engine: Engine, types: Sequence[JobType]) -> None:
        for worker in self.alive():
            if worker.condition is Condition.STARTING:
                await self._begin(worker, engine, types)
            else:
                await self._go_on(worker, engine, types)

    async def _begin(self, worker: FakeWorker, engine: Engine, types: Sequence[JobType]) -> None:
        if self.clock.now() - worker.started_at < self.startup or self.mute:
            return
        if self.broken:
            worker.end(1)
            return
        worker.condition = Condition.RUNNING
        await self._say(worker, engine, types)
        await self._claim(worker, engine, types)

    async def _go_on(self, worker: FakeWorker, engine: Engine, types: Sequence[JobType]) -> None:
        now = self.clock.now()
        over = [claim for claim, at in worker.jobs if now - at >= self.service]
        worker.jobs = [(claim, at) for claim, at in worker.jobs if claim not in over]
        fits = [claim for claim in over if not self.misfits or self.misfits not in bytes(claim.params)]
        assert await engine.worker_api.settle([success(claim) for claim in fits]) == []
        await engine.worker_api.settle([failure(claim, UNFIT) for claim in over if claim not in fits])
        if worker.condition is Condition.ENDING and not worker.jobs:
            await engine.worker_api.leave(worker.name)
            worker.end(0)
        elif worker.condition is Condition.RUNNING:
            await self._claim(worker, engine, types)
        if worker.seen_at is None or now - worker.seen_at >= HEARTBEAT:
            await self._say(worker, engine, types)

    async def _claim(self, worker: FakeWorker, engine: Engine, types: Sequence[JobType]) -> None:
        room = self.capacity - len(worker.jobs)
        others = frozenset(worker.order.environment.get("PENSTOCK_WORKER_EXCEPT_QUEUES", "").split())
        queues = None if worker.order.queues is None else frozenset(worker.order.queues)
        wanted = WorkRequest(frozenset(one.name for one in types), queues, others)
        if room:
            claims = await engine.worker_api.claim(worker.name, wanted, room, ZERO)
            worker.jobs += [(claim, self.clock.now()) for claim in claims]

    async def _say(self, worker: FakeWorker, engine: Engine, types: Sequence[JobType]) -> None:
        if worker.condition is Condition.ENDED:
            return
        row = self._row(worker, types)
        if worker.seen_at is None:
            await engine.worker_api.join(row, types)
        else:
            await engine.worker_api.renew(row, [Lease(claim.job, claim.fence) for claim, _ in worker.jobs])
        worker.seen_at = self.clock.now()

    def _row(self, worker: FakeWorker, types: Sequence[JobType]) -> Worker:
        ending = worker.condition is Condition.ENDING
        return Worker(
            id=worker.name,
            host="here",
            pid=1,
            version="test",
            app=self.app,
            types=tuple(one.name for one in types),
            queues=worker.order.queues,
            capacity=self.capacity,
            running=len(worker.jobs),
            state=WorkerState.DRAINING if ending else WorkerState.READY,
            started_at=worker.started_at,
            signatures={one.name: signature_of(one.params_schema) for one in types},
            code_age_seconds=(self.clock.now() - worker.started_at).total_seconds(),
        )


class World:
    """An engine, its dispatcher, a fleet backend and autoscalers; `run` lets time pass for all of them."""

    def __init__(self, engine: Engine, clock: SimulatedClock, fleets: FakeFleets, types: Sequence[JobType]) -> None:
        self.engine = engine
        self.clock = clock
        self.fleets = fleets
        self.hosts = [fleets]
        self.types = types
        self.dispatcher = dispatcher(engine)
        self.autoscalers = [self.autoscaler("a")]

    def autoscaler(self, holder: str, fleets: FakeFleets | None = None) -> Autoscaler:
        fleets = fleets or self.fleets
        return Autoscaler(self.engine, fleets, holder=holder, app=fleets.app, environment={"PENSTOCK_URL": "u"})

    async def run(self, seconds: float, *, dispatching: bool = True) -> None:
        for _ in range(round(seconds / TICK.total_seconds())):
            self.clock.advance(TICK)
            if dispatching:
                await self.dispatcher.step()
            for fleets in self.hosts:
                await fleets.work(self.engine, self.types if fleets.types is None else fleets.types)
            for autoscaler in self.autoscalers:
                await autoscaler.step()

    async def jobs(self) -> dict[State, int]:
        found: dict[State, int] = {}
        for count in await self.engine.store.counts():
            if count.jobs:
                found[count.state] = found.get(count.state, 0) + count.jobs
        return found

    def size(self, fleet: str | None = None) -> int:
        return len(self.fleets.alive(fleet))
