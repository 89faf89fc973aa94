"""Steps of clients and schedulers on an engine's schedules, shared by the tests of services."""

from collections import Counter
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from penstock.engine import Engine, SchedulerApi
from penstock.model.ids import JobId
from penstock.model.job import Job
from penstock.model.schedule import Schedule, TickRecord
from penstock.model.wire.schedules import ScheduleChange, ScheduleRequest
from penstock.scheduler import Ticker
from penstock.store.answers import require
from penstock.testing.clock import SimulatedClock

T = TypeVar("T")

SLOT = timedelta(seconds=1)
NOTHING = timedelta(0)


async def create(engine: Engine, name: str = "s", **more: object) -> Schedule:
    """A schedule of `other` each ten seconds, unless told otherwise."""
    when: dict[str, object] = {} if "cron" in more else {"interval": 10}
    body = {"name": name, "type": "other", **when, **more}
    schedule, _ = await engine.schedules.create(decoded(body, ScheduleRequest))
    return schedule


def change(**said: object) -> ScheduleChange:
    return decoded(said, ScheduleChange)


def decoded(body: dict[str, object], kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


class SimulatedTicker:
    """A ticker on a simulated clock: `runs` lets time pass as the ticker asks for it."""

    def __init__(self, engine: Engine, clock: SimulatedClock, scheduler_api: SchedulerApi | None = None) -> None:
        self.ticker = Ticker(scheduler_api or engine.ticks, SLOT, clock)
        self._engine = engine
        self._clock = clock
        self._heard = ""

    async def step(self) -> timedelta:
        """One step, woken as the service would be."""
        if self._engine.schedule_version.seen != self._heard:
            await self.ticker.follow_changes()
            self._heard = self._engine.schedule_version.seen
        return await self.ticker.step()

    async def settles(self) -> None:
        """Step until there is nothing to do at this instant."""
        while await self.step() <= NOTHING:
            continue

    async def runs(self, span: timedelta) -> int:
        """Let `span` pass; how many steps that took."""
        end, steps = self._clock.now() + span, 0
        while True:
            rest, steps = await self.step(), steps + 1
            left = end - self._clock.now()
            if rest > NOTHING and left <= NOTHING:
                return steps
            self._clock.advance(max(NOTHING, min(rest, left)))


async def history(engine: Engine, name: str = "s") -> list[TickRecord]:
    """Oldest first."""
    return list(await engine.schedules.history(name, None, 10_000))[::-1]


def told(records: list[TickRecord]) -> Counter[str]:
    """How many ticks became what."""
    return Counter("job" if record.job else str(record.skipped) for record in records)


async def jobs_of(engine: Engine, name: str = "s") -> list[Job]:
    ids = [record.job for record in await history(engine, name) if record.job is not None]
    return [job for job in require(await engine.store.get(ids)) if job is not None]


def ticks_of(records: list[TickRecord]) -> list[datetime]:
    return [record.at for record in records]


def job_of(record: TickRecord) -> JobId:
    assert record.job is not None
    return record.job
