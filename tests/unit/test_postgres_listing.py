"""Which walk a page of jobs takes: the one that reads the fewest rows in the worst case."""

import pytest

from penstock.model.job import Count, JobFilter
from penstock.model.lifecycle import State
from penstock.store.postgres.listing import Walk, cheapest

COUNTED = [
    Count("mail", "mail", State.SUCCEEDED, 5_000_000),
    Count("mail", "mail", State.QUEUED, 200_000),
    Count("mail", "mail", State.SCHEDULED, 1_000_000),
    Count("mail", "mail", State.RUNNING, 16),
    Count("scan", "scan", State.QUEUED, 30),
    Count("scan", "scan", State.RUNNING, 2_000),
]


@pytest.mark.parametrize(
    ("where", "walk"),
    [
        (JobFilter(), Walk.LINES),
        (JobFilter(type="mail"), Walk.LINES),
        (JobFilter(state=State.SUCCEEDED), Walk.LINES),
        (JobFilter(state=State.FAILED, queue="mail"), Walk.LINES),
        (JobFilter(tag="red"), Walk.BY_TAG),
        (JobFilter(state=State.RUNNING, tag="red"), Walk.BY_TAG),
        (JobFilter(state=State.RUNNING), Walk.RUNNING),
        (JobFilter(state=State.RUNNING, type="scan"), Walk.LINES),
        (JobFilter(state=State.QUEUED), Walk.QUEUED),
        (JobFilter(state=State.QUEUED, type="scan"), Walk.LINES),
        (JobFilter(state=State.SCHEDULED), Walk.LINES),
    ],
)
def test_the_walk_that_reads_least_is_taken(where: JobFilter, walk: Walk) -> None:
    assert cheapest(where, COUNTED, 50) is walk
