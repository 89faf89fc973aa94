"""Events, jobs and subscriptions for tests of webhooks."""

import random
from datetime import UTC, datetime
from typing import Any

from penstock.events.cloudevents import OutgoingEvent
from penstock.model.events import JobEvent, event_id
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import Job
from penstock.model.lifecycle import Move, State
from penstock.model.retry import Retry
from penstock.model.signatures import new_signing_secret
from penstock.model.subscriptions import SigningSecret, Subscription, WebhookSink
from penstock.model.wire.jobs import JobItem, job_item
from penstock.testing.clock import START

RNG = random.Random(13)
AT = datetime(2026, 11, 18, 12, 0, 0, 123_000, tzinfo=UTC)


def new_secret() -> str:
    return new_signing_secret(RNG.randbytes)


def new_job() -> JobId:
    return new_job_id(1_800_000_000_000, ShardId(3), RNG)


def event(job: JobId | None = None, version: int = 3, **facts: Any) -> JobEvent:
    job = job or new_job()
    usual: dict[str, Any] = {
        "type": "report",
        "queue": "bulk",
        "move": Move.SETTLE,
        "before": State.RUNNING,
        "after": State.SUCCEEDED,
        "attempt": 1,
        "reason": None,
        "at": AT,
    }
    return JobEvent(id=event_id(job, version), job=job, version=version, **usual | facts)


def item(job: JobId) -> JobItem:
    row = Job(
        id=job,
        type="report",
        queue="bulk",
        state=State.SUCCEEDED,
        params=b'{"rows": 500, "title": "\xc3\x84 \xe2\x82\xac"}',
        result=b"[1, 2.5, null]",
        retry=Retry(),
        due_at=AT,
        created_at=AT,
        tags=("nightly",),
    )
    return job_item(row, None)


def outgoing(version: int = 3) -> OutgoingEvent:
    told = event(version=version)
    return OutgoingEvent(told, item(told.job))


def subscription(url: str = "https://example.com/hook", **changes: Any) -> Subscription:
    usual: dict[str, Any] = {
        "name": "orders",
        "sink": WebhookSink(url),
        "secrets": (SigningSecret(text=new_secret(), created_at=START),),
        "created_at": START,
        "changed_at": START,
    }
    return Subscription(**usual | changes)
