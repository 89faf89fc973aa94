"""History as a trace."""

from datetime import UTC, datetime, timedelta

from msgspec import Raw
from msgspec.structs import replace

from penstock.lab.simulation.command import line_of
from penstock.lab.simulation.world import TracedJob
from penstock.model.ids import JobId
from penstock.model.job import Job
from penstock.model.lifecycle import State
from penstock.model.retry import Retry
from penstock.model.wire.jobs import job_item

MADE = datetime(2026, 11, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
JOB = Job(
    id=JobId("019a0000-0000-7000-8000-000000000000"), type="mail", queue="mail", state=State.SUCCEEDED, retry=Retry(),
    due_at=MADE + 60 * SECOND, created_at=MADE, started_at=MADE + 61 * SECOND, completed_at=MADE + 64 * SECOND,
)  # fmt: skip


def test_a_line_tells_when_a_job_was_due_how_long_it_ran_and_how_long_before_it_was_known() -> None:
    item = job_item(JOB)
    assert item.params == Raw(b"null")
    assert line_of(item) == TracedJob((MADE + 60 * SECOND).timestamp(), 3.0, 60.0)


def test_a_job_that_was_due_at_once_was_not_known_before() -> None:
    line = line_of(job_item(replace(JOB, due_at=MADE - SECOND)))
    assert line == TracedJob(MADE.timestamp(), 3.0)


def test_a_job_that_never_ran_has_no_line() -> None:
    assert line_of(job_item(replace(JOB, state=State.CANCELLED, started_at=None))) is None
