"""The sweep: one invocation gives every service of a scheduler and of an autoscaler its step.

Any number of sweeps may run at once, as any number of schedulers may. What a service knows between its steps is kept
with the process and is never needed: another process begins without it.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from penstock.engine import Engine
from penstock.functions.budget import Budget
from penstock.functions.deliveries import RelayRounds, first_retry, raise_failures
from penstock.functions.scaling import FunctionScaling
from penstock.functions.wake_ups import WakeUpQueue
from penstock.loop import Step
from penstock.model.clock import seconds, within
from penstock.model.errors import Unavailable
from penstock.model.fleet_readings import Unknown
from penstock.model.ids import ShardId
from penstock.model.lifecycle import Event
from penstock.scheduler import Dispatcher, JournalService, Pruner, Reaper, Ticker
from penstock.scheduler.cloudwatch import QueueMetrics, read_gauges
from penstock.scheduler.sweeper import PRUNE_INTERVAL as FULL_REST
from penstock.store import Shard

logger = logging.getLogger("penstock.functions")

ZERO: Final = timedelta(0)
PRUNE_INTERVAL: Final = timedelta(minutes=10)
MOST_RUNS: Final = 50
"""How often a step is repeated in one sweep because it has more to do: the next sweep goes on."""


class StepReport(Struct, frozen=True, omit_defaults=True):
    """What one step did: how often it ran, how long it took, and why it failed if it did."""

    step: str
    runs: int
    seconds: float
    error: str | None = None


class SweepReport(Struct, frozen=True):
    """The answer of a sweep. `moves` counts the jobs that it moved; `wake_seconds`: how soon the next one is asked for.

    `unfinished` names the steps that time was too short for: they go on with the next sweep.
    """

    moves: dict[str, int]
    steps: Sequence[StepReport]
    unfinished: Sequence[str]
    wake_seconds: float | None

    @property
    def failed(self) -> list[StepReport]:
        return [one for one in self.steps if one.error is not None]


class SweepFailed(Exception):
    """Steps of a sweep failed, after all others had their turn: the invocation must count as an error."""


class Upcoming(Struct, kw_only=True):
    """What the steps of a sweep learn about when the next one is needed."""

    is_busy: bool = False
    known: list[datetime] = []

    def note(self, at: datetime | None) -> None:
        if at is not None:
            self.known.append(at)

    def next_at(self, now: datetime, busy_interval: timedelta) -> datetime | None:
        """When the next sweep has something to do; None if nothing is known to come."""
        return min([*self.known, *([now + busy_interval] if self.is_busy else ())], default=None)


class ShardSteps:
    """The services of one shard."""

    def __init__(self, engine: Engine, shard: Shard) -> None:
        self.shard = shard
        self.reaper = Reaper(engine, shard)
        self.dispatcher = Dispatcher(engine, shard)
        self.journal = JournalService(shard)
        # Nothing is swept from the object store: a rule of the bucket's life cycle does that, without reading it.
        self.pruner = Pruner(engine, shard, sweep_objects=False)
        self.pruned_at = float("-inf")


class Sweep:
    """The services of one process, and their order in a sweep."""

    def __init__(self, engine: Engine, wake_ups: WakeUpQueue | None, scaling: FunctionScaling | None = None) -> None:
        self._engine = engine
        self._wake_ups = wake_ups
        self._scaling = scaling
        self._relays = RelayRounds(engine)
        self._metrics = QueueMetrics(engine)
        self._shards: dict[ShardId, ShardSteps] = {}
        self._moves: Counter[str] = Counter()
        engine.signals.events.subscribe(self._count)

    async def run(self, budget: Budget) -> SweepReport:
        """Step every service; one that fails or takes too long does not keep the others from theirs."""
        self._moves.clear()
        upcoming, reports, unfinished = Upcoming(), list[StepReport](), list[str]()
        for name, step in self._steps(budget, upcoming):
            report, is_finished = await self._run_step(name, step, budget)
            reports.append(report)
            if not is_finished:
                unfinished.append(name)
        upcoming.is_busy |= bool(unfinished)
        wake = await self._request(upcoming)
        return SweepReport(dict(self._moves), reports, unfinished, None if wake is None else wake.total_seconds())

    async def deliver(self, budget: Budget) -> SweepReport:
        """Step the relays only."""
        self._moves.clear()
        upcoming = Upcoming()
        report, is_finished = await self._run_step("relays", lambda: self._run_relays(budget, upcoming), budget)
        upcoming.is_busy = not is_finished
        wake = await self._request(upcoming)
        unfinished = () if is_finished else ("relays",)
        return SweepReport({}, [report], unfinished, None if wake is None else wake.total_seconds())

    async def close(self) -> None:
        """End the connections to sinks and fleets."""
        await self._relays.close()
        if self._scaling is not None:
            await self._scaling.close()

    def _steps(self, budget: Budget, upcoming: Upcoming) -> Iterator[tuple[str, Step]]:
        """In order: what a step leaves behind is what a later one acts on."""
        every = [self._steps_of(shard) for shard in self._engine.store.shards()]
        for one in every:
            yield f"reaper {one.shard.shard}", one.reaper.step
        yield "ticker", lambda: self._tick(upcoming)
        for one in every:
            yield f"dispatcher {one.shard.shard}", self._dispatch(one, upcoming)
            yield f"journal {one.shard.shard}", one.journal.step
        if self._scaling is not None:
            yield "autoscaler", self._scaling.autoscaler.step
        yield "metrics", lambda: self._tell_metrics(upcoming)
        yield "relays", lambda: self._run_relays(budget, upcoming)
        for one in every:
            if self._engine.clock.monotonic() - one.pruned_at >= PRUNE_INTERVAL.total_seconds():
                yield f"pruner {one.shard.shard}", self._prune(one)

    def _steps_of(self, shard: Shard) -> ShardSteps:
        known = self._shards.get(shard.shard)
        if known is None or known.shard is not shard:
            known = self._shards[shard.shard] = ShardSteps(self._engine, shard)
        return known

    async def _run_step(self, name: str, step: Step, budget: Budget) -> tuple[StepReport, bool]:
        """Step until there is no more to do at once; whether it came to that."""
        clock, runs, rest = self._engine.clock, 0, ZERO
        began, error = clock.monotonic(), None
        try:
            while rest <= ZERO and runs < MOST_RUNS and not budget.is_over:
                answer = await within(budget.left, step())
                if answer is None:
                    break
                rest, runs = answer, runs + 1
        except Unavailable as unavailable:
            error = unavailable.message
            logger.warning("%s: %s", name, error)
        except Exception as unexpected:
            error = f"{type(unexpected).__name__}: {unexpected}"
            logger.exception("%s: the step failed", name)
        took = round(clock.monotonic() - began, 3)
        return StepReport(name, runs, took, error), rest > ZERO or error is not None

    async def _tick(self, upcoming: Upcoming) -> timedelta:
        engine, slot = self._engine, seconds(self._engine.settings.timing.slot_seconds)
        # A new one: what a ticker holds on its timer is out of date when the process goes on.
        rest = await Ticker(engine.ticks, slot, engine.clock).step()
        upcoming.note(await engine.store.next_tick())
        return rest

    def _dispatch(self, one: ShardSteps, upcoming: Upcoming) -> Step:
        async def step() -> timedelta:
            rest = await one.dispatcher.step()
            if rest > ZERO:
                upcoming.note((await one.shard.due_summary()).next_due_at)
            return rest

        return step

    async def _tell_metrics(self, upcoming: Upcoming) -> timedelta:
        gauges = await read_gauges(self._engine)
        self._metrics.tell(gauges)
        upcoming.is_busy |= isinstance(gauges, Unknown) or not all(one.is_idle for one in gauges)
        if isinstance(gauges, Unknown):
            raise Unavailable(f"the backlog is not known: {gauges.unknown}")
        return PRUNE_INTERVAL

    async def _run_relays(self, budget: Budget, upcoming: Upcoming) -> timedelta:
        reports = await self._relays.run(budget)
        upcoming.note(first_retry(reports))
        upcoming.is_busy |= not all(one.is_finished for one in reports)
        raise_failures(reports)
        return PRUNE_INTERVAL

    def _prune(self, one: ShardSteps) -> Step:
        async def step() -> timedelta:
            rest = await one.pruner.step()
            if rest >= FULL_REST:
                one.pruned_at = self._engine.clock.monotonic()
            return rest

        return step

    async def _request(self, upcoming: Upcoming) -> timedelta | None:
        if self._wake_ups is None:
            return None
        busy_interval = seconds(self._engine.settings.functions.busy_seconds)
        return await self._wake_ups.request(upcoming.next_at(self._engine.clock.now(), busy_interval))

    def _count(self, events: Sequence[Event]) -> None:
        self._moves.update(event.move for event in events)
