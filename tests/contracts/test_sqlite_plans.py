"""Every hot statement walks the index it was written for, whatever the planner has been told about the data."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from penstock.model.job import Settlement
from penstock.model.lifecycle import State
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.connection import open_reader
from penstock.store.sqlite.statements import ROWS_MAX, Bulk, load
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.reading import populate
from penstock.testing.store_contract.stage import TICKET, Stage

SORTS = "TEMP B-TREE"

PLANS = {
    "existing": {"SEARCH jobs USING by_id", "SEARCH jobs USING by_key"},
    "submit_tags": {"SEARCH jobs USING by_id"},
    "promote": {"SEARCH jobs USING due", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "dispatch": {"SEARCH jobs USING unticketed", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "lapse": {"SEARCH jobs USING ticketed"},
    "claim": {"SEARCH jobs USING by_id"},
    "renew": {"SEARCH jobs USING by_id"},
    "settle": {"SEARCH jobs USING by_id"},
    "release": {"SEARCH jobs USING by_id"},
    "reclaim": {"SEARCH jobs USING leases", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "fences": {"SEARCH jobs USING by_id"},
    "cancel": {"SEARCH jobs USING by_id"},
    "expirable": {"SEARCH jobs USING expiring"},
    "expire": {"SEARCH jobs USING INTEGER PRIMARY KEY"},
    "jobs_by_id": {"SEARCH jobs USING by_id"},
    "jobs_by_seq": {"SEARCH jobs USING INTEGER PRIMARY KEY"},
    "backlog": {"SEARCH jobs USING unticketed"},
    "next_due": {"SEARCH jobs USING due"},
    "oldest_due": {"SEARCH jobs USING ticketed", "SEARCH jobs USING unticketed"},
    "list_newest": {"SEARCH jobs USING INTEGER PRIMARY KEY"},
    "list_by_type": {"SEARCH jobs USING by_type"},
    "list_by_queue": {"SEARCH jobs USING by_queue"},
    "list_by_tag": {"SEARCH job_tags USING PRIMARY KEY", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "list_unhappy": {"SEARCH jobs USING unhappy"},
    "prune": {"SEARCH jobs USING finished", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "prune_tags": {"SEARCH job_tags USING tags_of"},
    "prune_logs": {"SEARCH job_logs USING PRIMARY KEY"},
    "log_end": {"SEARCH jobs USING by_id", "SEARCH job_logs USING PRIMARY KEY"},
    "read_log": {"SEARCH jobs USING by_id", "SEARCH job_logs USING PRIMARY KEY"},
}
"""What each statement must use. None of these may sort, or scan a table of jobs."""

SORTED_PLANS = {
    "list_scheduled": {"SCAN jobs USING due"},
    "list_running": {"SCAN jobs USING leases"},
    "list_queued": {"SCAN jobs USING unticketed", "SCAN jobs USING ticketed"},
}
"""Walks through a small index that are sorted afterwards."""


@pytest.fixture(scope="module", params=["as it comes", "analyzed"])
def connection(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    asyncio.run(fill(path, analyzed=request.param == "analyzed"))
    reader = open_reader(path)
    yield reader
    reader.close()


async def fill(path: Path, *, analyzed: bool) -> None:
    """Some jobs in every state, and thousands that have ended."""
    clock = SimulatedClock()
    store = await SqliteStore.open(path, clock=clock)
    stage = Stage(store, clock)
    await populate(stage)
    answers = await store.submit([stage.new(tags=("red",)) for _ in range(3000)], TICKET)
    await store.settle(
        [
            Settlement(job=claim.job, fence=claim.fence, state=State.SUCCEEDED)
            for claim in await stage.claim(*(answer.job.id for answer in answers))
        ]
    )
    if analyzed:
        await store.writer.run(lambda tx: tx.connection.execute("ANALYZE").fetchall())
    await store.close()


@pytest.mark.parametrize("name", PLANS)
def test_a_hot_statement_uses_its_index(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, name)
    for wanted in PLANS[name]:
        assert any(step.startswith(wanted) for step in steps), steps
    assert not any(step.startswith("SCAN job") or SORTS in step for step in steps), steps


@pytest.mark.parametrize("name", SORTED_PLANS)
def test_a_walk_by_state_reads_only_that_state(connection: apsw.Connection, name: str) -> None:
    scans = {step for step in plan(connection, name) if "jobs" in step}
    assert scans == SORTED_PLANS[name]


@pytest.mark.parametrize("name", ["claim", "renew", "settle", "release"])
@pytest.mark.parametrize("size", [2, 32, ROWS_MAX])
def test_many_rows_are_looked_up_one_by_one(connection: apsw.Connection, name: str, size: int) -> None:
    found = list(steps(connection, Bulk(name).sized(size)))
    assert [step for step in found if "jobs" in step] == ["SEARCH jobs USING by_id (id=?)"], found
    assert not any("AUTOMATIC" in step for step in found), found


def plan(connection: apsw.Connection, name: str) -> list[str]:
    return list(steps(connection, load(name)))


def steps(connection: apsw.Connection, text: str) -> Iterator[str]:
    bindings = [None] * text.count("?") or Anything()
    for *_, detail in connection.execute("EXPLAIN QUERY PLAN " + text, bindings):
        yield re.sub("COVERING |EXISTS |INDEX ", "", str(detail))


class Anything(dict[str, None]):
    """A binding for every name."""

    def __missing__(self, name: str) -> None:
        return None
