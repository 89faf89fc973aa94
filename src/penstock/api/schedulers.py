"""Schedulers: the moves by which a scheduler reaches the engine over HTTP."""

from collections.abc import Iterable

from msgspec.structs import replace

from penstock.api.operation import Answer, operation
from penstock.api.request import ApiReply, ApiRequest, is_job_id, json_reply
from penstock.model.clock import seconds
from penstock.model.errors import Forbidden, Invalid
from penstock.model.params import NO_PARAMS
from penstock.model.schedule import Decision
from penstock.model.wire.schedules import Agenda, DueRequest, TickRequest, TickResponse
from penstock.store.answers import require


@operation("POST /v1/schedulers/{scheduler}/due", {200: Answer("What falls due.", Agenda)}, body=DueRequest)
async def read_due(call: ApiRequest) -> ApiReply:
    """Tell what falls due in the coming slot; with `seen`, once something has changed or `wait_seconds` have passed."""
    call.path("scheduler")
    request = await call.json(DueRequest)
    wait = seconds(min(request.wait_seconds, call.engine.settings.limits.wait_seconds))
    reading = call.engine.ticks.due(seconds(request.slot_seconds), request.limit, wait, request.seen)
    return json_reply(200, _for_scheduler(await call.wait_for(reading)))


@operation(
    "POST /v1/schedulers/{scheduler}/tick",
    {200: Answer("Which decisions were applied.", TickResponse)},
    body=TickRequest,
)
async def apply_decisions(call: ApiRequest) -> ApiReply:
    """Carry out what a scheduler decided, where nobody else was faster. May be repeated."""
    call.path("scheduler")
    request = await call.json(TickRequest)
    _check(request.decisions)
    await _refuse_foreign_jobs(call, request.decisions)
    return json_reply(200, TickResponse(tuple(await call.engine.ticks.apply(request.decisions))))


def _for_scheduler(agenda: Agenda) -> Agenda:
    """The agenda without params and tags: a scheduler decides without them, and the server makes the jobs."""
    due = tuple(replace(one, schedule=replace(one.schedule, params=NO_PARAMS, tags=())) for one in agenda.due)
    return replace(agenda, due=due)


async def _refuse_foreign_jobs(call: ApiRequest, decisions: Iterable[Decision]) -> None:
    """Raise Forbidden for a decision that would cancel a job which is not of its own schedule."""
    wanted = [(job, decision.name) for decision in decisions for job in decision.cancel]
    if not wanted:
        return
    jobs = require(await call.engine.store.get([job for job, _ in wanted]))
    for job, (_, schedule) in zip(jobs, wanted, strict=True):
        if job is not None and job.schedule != schedule:
            raise Forbidden(f"job {job.id} is not of the schedule {schedule!r}; a scheduler cancels no others")


def _check(decisions: Iterable[Decision]) -> None:
    for decision in decisions:
        if any(verdict.skipped == "" for verdict in decision.verdicts):
            raise Invalid(f"decision about {decision.name!r}: a skip needs a reason")
        for job in decision.cancel:
            if is_job_id(job) is None:
                raise Invalid(f"cancel: {job!r} is not a job id")


OPERATIONS = (read_due, apply_decisions)
