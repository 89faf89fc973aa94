"""The walk of a page is chosen by what it may have to read."""

import pytest

from penstock.model.job import Count, JobFilter
from penstock.model.lifecycle import State
from penstock.store.sqlite.queries import Walk, cheapest

MANY = [
    Count("mail", "mail", State.SUCCEEDED, 1_000_000),
    Count("mail", "mail", State.FAILED, 300),
    Count("mail", "mail", State.QUEUED, 20_000),
    Count("scan", "scan", State.SUCCEEDED, 500),
    Count("scan", "scan", State.RUNNING, 4),
    Count("mail", "scan", State.SCHEDULED, 50),
]


@pytest.mark.parametrize(
    ("where", "walk"),
    [
        (JobFilter(), Walk.NEWEST),
        (JobFilter(state=State.SUCCEEDED), Walk.NEWEST),
        (JobFilter(state=State.FAILED), Walk.UNHAPPY),
        (JobFilter(state=State.QUEUED), Walk.QUEUED),
        (JobFilter(state=State.RUNNING), Walk.RUNNING),
        (JobFilter(state=State.SCHEDULED), Walk.SCHEDULED),
        (JobFilter(type="scan"), Walk.BY_TYPE),
        (JobFilter(queue="scan"), Walk.BY_QUEUE),
        (JobFilter(type="scan", queue="mail"), Walk.BY_TYPE),
        (JobFilter(type="scan", state=State.SUCCEEDED), Walk.BY_TYPE),
        (JobFilter(type="scan", state=State.RUNNING), Walk.RUNNING),
        (JobFilter(type="mail", state=State.FAILED), Walk.UNHAPPY),
        (JobFilter(type="mail", tag="red"), Walk.BY_TAG),
    ],
)
def test_the_cheapest_walk_is_taken(where: JobFilter, walk: Walk) -> None:
    assert cheapest(where, MANY, 50) is walk


@pytest.mark.parametrize(
    "where",
    [JobFilter(state=State.EXPIRED), JobFilter(type="none"), JobFilter(queue="scan", state=State.QUEUED)],
)
def test_nothing_is_read_where_nothing_can_match(where: JobFilter) -> None:
    assert cheapest(where, MANY, 50) is None
