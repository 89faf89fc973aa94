"""Ticks of inline mode: what a declared schedule asks for, as a submit."""

from datetime import datetime

from msgspec import UNSET, Struct

from penstock.model.wire.jobs import SubmitRequest
from penstock.model.wire.schedules import ScheduleRequest


class Tick(Struct, frozen=True):
    """Which schedule, and when."""

    schedule: str
    at: datetime


def submit_of(declared: ScheduleRequest) -> SubmitRequest:
    """The job that each tick of this schedule asks for."""
    return SubmitRequest(
        type=declared.type,
        params=declared.params,
        queue=declared.queue,
        priority=declared.priority,
        retry_policy=declared.retry_policy,
        timeout_seconds=UNSET if declared.timeout_seconds is None else declared.timeout_seconds,
        tags=declared.tags,
    )
