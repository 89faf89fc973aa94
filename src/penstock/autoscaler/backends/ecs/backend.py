"""The fleet backend for Amazon ECS. Tasks are in the cluster; requests to drain travel through the registry."""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from penstock.autoscaler.backends.ecs.cluster import EcsCluster, RunAnswer
from penstock.autoscaler.backends.ecs.task import (
    OVER,
    TaskPlan,
    TaskRow,
    group_of,
    member_of,
    run_request,
    started_by,
    unstarted,
)
from penstock.autoscaler.backends.seam import FleetMember, LaunchSpec
from penstock.model.clock import Clock, seconds
from penstock.model.errors import FleetUnavailable, Unavailable

logger = logging.getLogger("penstock.autoscaler")

TASKS_AT_ONCE = 10
"""Most tasks of one RunTask."""
LOOK_EVERY = seconds(1.0)
"""How long one look at the cluster serves all fleets: ECS answers only so many calls a second."""
TASKS_A_LOOK = 200
"""With more tasks there are fewer looks: each hundred takes two calls."""
APPEAR_WITHIN = timedelta(minutes=1)
"""ECS may not list or describe a task that it has just started."""
HEAR_WITHIN = seconds(30.0)
"""How long after its patience a worker may take to hear of it and to give its jobs back, before its task is stopped."""


class DrainRegistry(Protocol):
    """Carries requests to drain to workers that have joined."""

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]: ...


class TaskStop(Struct, frozen=True):
    """A request to stop a task. `until`: when its patience is over; `heard`: the registry knows its worker."""

    until: datetime | None
    heard: bool = False
    sent: bool = False

    def stops_at(self) -> datetime | None:
        """When StopTask is due: a worker that has joined is given time to hear of the request first."""
        return None if self.until is None else self.until + (HEAR_WITHIN if self.heard else timedelta(0))


class UnsureStart(Struct, frozen=True):
    """A RunTask whose answer was lost: the same request, with its token, starts nothing twice."""

    request: dict[str, Any]
    asked_at: datetime


class EcsFleets:
    """Workers as tasks of one cluster, found by what started them, whichever process that was.

    `system` separates installations that share a cluster. Tasks outlive the autoscaler, and the name of a worker is the
    id of its task. A worker is asked to drain through the registry: a task that is stopped is killed two minutes later
    at most, whatever it runs. A fleet whose plan names a service is only watched.
    """

    def __init__(
        self,
        registry: DrainRegistry,
        clock: Clock,
        rng: random.Random,
        *,
        cluster: str = "default",
        system: str = "penstock",
        plan: TaskPlan | None = None,
        plans: Mapping[str, TaskPlan] | None = None,
        look_every: timedelta = LOOK_EVERY,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._rng = rng
        self._cluster = EcsCluster(cluster)
        self._system = system
        self._plan = plan or TaskPlan()
        self._plans = plans or {}
        self._look_every = look_every.total_seconds()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._rows: dict[str, TaskRow] = {}
        self._groups: set[str] = set()
        self._stops: dict[str, TaskStop] = {}
        self._unsure: dict[str, UnsureStart] = {}
        self._unstarted: dict[str, list[FleetMember]] = {}

    async def start(self, spec: LaunchSpec, count: int) -> list[str]:
        plan = self._plan_of(spec.fleet)
        if plan.service is not None:
            raise FleetUnavailable(f"fleet {spec.fleet} is scaled by the alarms of service {plan.service}, not here")
        started: list[TaskRow] = []
        while len(started) < count:
            answer = await self._start_some(spec, plan, count - len(started))
            started += answer.tasks
            if answer.failures or not answer.tasks:
                self._note_failures(spec.fleet, answer.failures, any_started=bool(started))
                break
        return [row.id for row in started]

    async def stop(self, fleet: str, names: Sequence[str], patience: timedelta | None = None) -> None:
        if self._plan_of(fleet).service is not None:
            logger.debug("fleet %s: its service stops its tasks", fleet)
            return
        now = self._clock.now()
        going = [row for row in await self._tasks_of(fleet) if row.id in set(names) and not row.ended]
        until = None if patience is None else now + patience
        for row in going:
            self._stops[row.id] = _sooner(self._stops.get(row.id), until)
        await self._ask_to_drain([row.id for row in going], patience)
        await self._end_overdue(going, now)

    async def members(self, fleet: str) -> list[FleetMember]:
        if (service := self._plan_of(fleet).service) is not None:
            return await self._read_service(service)
        rows, now = await self._tasks_of(fleet), self._clock.now()
        await self._follow_up([row for row in rows if not row.ended], now)
        found = [member_of(row, asked=row.id in self._stops) for row in rows]
        for row in rows:
            if row.ended:
                self._forget(row)
        return sorted([*found, *self._unstarted.pop(fleet, ())], key=lambda member: member.name)

    def elsewhere(self, fleet: str, workers: Iterable[str]) -> list[str]:
        """None: the cluster lists all members to every autoscaler."""
        return []

    async def external_count(self, fleet: str) -> int | None:
        service = self._plan_of(fleet).service
        return None if service is None else (await self._cluster.service(service)).desired

    async def stand_by(self) -> None:
        """Nothing to drain: the leading autoscaler sees all members."""

    async def close(self) -> None:
        """Close the connections. All tasks go on."""
        await self._cluster.close()

    def _plan_of(self, fleet: str) -> TaskPlan:
        plan = self._plans.get(fleet, self._plan)
        service = None if plan.service is None else plan.service.replace("{fleet}", fleet)
        return replace(plan, service=service, task_definition=plan.task_definition.replace("{fleet}", fleet))

    # -- starting

    async def _start_some(self, spec: LaunchSpec, plan: TaskPlan, count: int) -> RunAnswer:
        """Start up to TASKS_AT_ONCE; first those of a start whose answer was lost, which may have succeeded."""
        now, fleet = self._clock.now(), spec.fleet
        unsure = self._unsure.pop(fleet, None)
        if unsure is not None and now - unsure.asked_at < APPEAR_WITHIN and unsure.request["count"] <= count:
            call = unsure
        else:
            token = f"{self._rng.getrandbits(128):032x}"
            call = UnsureStart(run_request(spec, plan, min(count, TASKS_AT_ONCE), token, self._system), now)
        try:
            answer = await self._cluster.run(call.request)
        except FleetUnavailable as error:
            if not error.unsent:
                self._unsure[fleet] = call
            raise
        self._rows |= {row.arn: row for row in answer.tasks}
        return answer

    def _note_failures(self, fleet: str, failures: Sequence[str], *, any_started: bool) -> None:
        """Raise FleetUnavailable if nothing was started; else list the others as ended, with the reason."""
        reason = "; ".join(dict.fromkeys(failures)) or "it gives no reason"
        if not any_started:
            raise FleetUnavailable(f"fleet {fleet}: ECS started no task: {reason}")
        logger.warning("fleet %s: %d workers could not be started: %s", fleet, len(failures), reason)
        now, numbers = self._clock.now(), (self._rng.getrandbits(64) for _ in failures)
        self._unstarted.setdefault(fleet, []).extend(unstarted(fleet, number, reason, now) for number in numbers)

    # -- looking

    async def _tasks_of(self, fleet: str) -> list[TaskRow]:
        group = group_of(self._system, fleet)
        self._groups.add(group)
        await self._look()
        return [row for row in self._rows.values() if row.group == group]

    async def _look(self) -> None:
        """Read all tasks, unless that was done a moment ago: those that are to run, and those known from before."""
        async with self._looking:
            if self._clock.monotonic() - self._looked_at < self._look_every * max(1.0, len(self._rows) / TASKS_A_LOOK):
                return
            listed = await self._cluster.find_tasks(startedBy=started_by(self._system))
            known = {arn: row for arn, row in self._rows.items() if not row.ended}
            found = await self._cluster.describe(dict.fromkeys([*listed, *known]))
            now = self._clock.now()
            gone = {arn: _gone(row, now) for arn, row in known.items() if arn not in found}
            # Those of other fleets are never asked for here.
            ended = {arn: row for arn, row in self._rows.items() if row.ended and row.group in self._groups}
            self._rows = {**ended, **gone, **found}
            self._looked_at = self._clock.monotonic()

    async def _read_service(self, service: str) -> list[FleetMember]:
        rows = await self._cluster.describe(await self._cluster.find_tasks(serviceName=service))
        return sorted(map(member_of, rows.values()), key=lambda member: member.name)

    def _forget(self, row: TaskRow) -> None:
        self._rows.pop(row.arn, None)
        self._stops.pop(row.id, None)

    # -- stopping

    async def _ask_to_drain(self, names: Sequence[str], patience: timedelta | None) -> None:
        """Ask those that have joined; `_follow_up` asks the others again."""
        for name in await self._registry.ask_to_drain(names, patience) if names else ():
            self._stops[name] = replace(self._stops[name], heard=True)

    async def _follow_up(self, rows: Sequence[TaskRow], now: datetime) -> None:
        """Ask workers that had not joined before, and stop tasks whose patience is over."""
        for row in rows:
            stop = self._stops.get(row.id)
            if stop is not None and not stop.heard:
                left = None if stop.until is None else max(timedelta(0), stop.until - now)
                with suppress(Unavailable):
                    await self._ask_to_drain([row.id], left)
        await self._end_overdue(rows, now)

    async def _end_overdue(self, rows: Sequence[TaskRow], now: datetime) -> None:
        for row in rows:
            stop = self._stops.get(row.id)
            stops_at = None if stop is None or stop.sent else stop.stops_at()
            if stop is not None and stops_at is not None and stops_at <= now:
                logger.warning("task %s is stopped: its worker has not ended by itself", row.id)
                await self._cluster.stop(row.arn, "it has not drained within its patience")
                self._stops[row.id] = replace(stop, sent=True)


def _sooner(stop: TaskStop | None, until: datetime | None) -> TaskStop:
    """The request with the earlier end."""
    if stop is None:
        return TaskStop(until)
    ends = [at for at in (stop.until, until) if at is not None]
    return replace(stop, until=min(ends, default=None))


def _gone(row: TaskRow, now: datetime) -> TaskRow:
    """A task that ECS does not describe: not yet, or not any more."""
    if now - row.created_at < APPEAR_WITHIN:
        return row
    return replace(row, status=OVER, reason="ECS does not know it any more")
