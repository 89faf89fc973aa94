"""`interval` on a submitted job: the short way to make a schedule. Its first tick is now, and its job is the answer."""

import hashlib

from msgspec.structs import replace

from penstock.engine.job_spec import missing_job
from penstock.engine.parts import EngineParts
from penstock.engine.schedule_spec import same_intention
from penstock.engine.scheduler_api import Ticks
from penstock.engine.schedules import Schedules
from penstock.model import ticks
from penstock.model.errors import Invalid, KeyConflict, PenstockError
from penstock.model.schedule import Decision, Schedule, Verdict
from penstock.model.submission import Known, Submission
from penstock.model.wire.jobs import SubmitRequest
from penstock.model.wire.schedules import ScheduleBody
from penstock.store import schedule_key
from penstock.store.answers import require

EXCLUDED = ("delay_seconds", "scheduled_at", "expires_at", "inputs")
"""Fields that a repeating job cannot have: its jobs are due at their ticks, and each would need inputs of its own."""


class RepeatedSubmits:
    """Makes the schedule of a job that was submitted with an interval."""

    def __init__(self, parts: EngineParts, schedules: Schedules, ticks: Ticks) -> None:
        self._store = parts.store
        self._signals = parts.signals
        self._schedules = schedules
        self._ticks = ticks

    async def submit(self, request: SubmitRequest, job_id: str) -> Submission | PenstockError:
        """The first job of a new schedule named after `job_id`; with a key, of the schedule that the key made before.

        If the process dies once the schedule is stored, the schedulers do its first tick: the same job, a little later.
        """
        try:
            wanted = await self._schedule(request, job_id)
            made = await self._store.put_schedule(wanted, None)
            if made is None:
                return await self._find_existing(wanted, request)
            self._signals.schedules.publish(None)
            (ticked,) = await self._ticks.tick([_first_tick(made)])
            return Known(ticked.jobs[0], ticked.events[0]) if ticked.jobs else await self._find_existing(made, request)
        except PenstockError as error:
            return error

    async def _schedule(self, request: SubmitRequest, job_id: str) -> Schedule:
        _refuse_excluded(request)
        name = f"every-{job_id}" if request.idempotency_key is None else _name_of_key(request.idempotency_key)
        now = await self._schedules.now()
        return replace(await self._schedules.check(name, _body(request), now), next_tick_at=now)

    async def _find_existing(self, wanted: Schedule, request: SubmitRequest) -> Submission:
        """The first job of the stored schedule, made by an earlier call or by a scheduler that was faster."""
        schedule = await self._schedules.get(wanted.name)
        if not same_intention(schedule, wanted):
            raise KeyConflict(
                f"the idempotency key {request.idempotency_key!r} was used for schedule {schedule.name}, "
                "which asked for something else"
            )
        first = ticks.tick_job_id(
            schedule.name, schedule.created_at, schedule.created_at, self._store.shard_for(schedule_key(schedule.name))
        )
        (job,) = require(await self._store.get([first]))
        if job is None:
            raise missing_job(first)
        return Known(job)


def _first_tick(schedule: Schedule) -> Decision:
    first = schedule.created_at
    return Decision(
        name=schedule.name,
        version=schedule.version,
        expected_tick_at=first,
        next_tick_at=ticks.next_tick(schedule.when, first),
        verdicts=(Verdict(first),),
    )


def _body(request: SubmitRequest) -> ScheduleBody:
    given = request.timeout_seconds
    return ScheduleBody(
        interval=request.interval,
        type=request.type,
        params=request.params,
        queue=request.queue,
        priority=request.priority,
        retry_policy=request.retry_policy,
        timeout_seconds=given if isinstance(given, float) else None,
        tags=request.tags,
    )


def _refuse_excluded(request: SubmitRequest) -> None:
    for name in EXCLUDED:
        if getattr(request, name):
            raise Invalid(
                f"interval: cannot go with {name}; make a schedule (POST /v1/schedules), or leave one of them out"
            )


def _name_of_key(key: str) -> str:
    return f"every-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
