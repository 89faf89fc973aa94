"""Every hot statement walks the index it was written for, whatever the planner has been told about the data."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from penstock.model.job import Settlement
from penstock.model.lifecycle import State
from penstock.model.schedule import Every
from penstock.store.sqlite import SqliteStore
from penstock.store.sqlite.connection import open_reader
from penstock.store.sqlite.statements import ROWS_MAX, Bulk, load
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.reads import populate
from penstock.testing.store_contract.schedules import put, tick
from penstock.testing.store_contract.stage import MINUTE, TICKET, StoreStage

SORTS = "TEMP B-TREE"
SCANS = (
    "SCAN job",
    "SCAN schedules",
    "SCAN ticks",
    "SCAN workers",
    "SCAN journal",
    "SCAN history",
    "SCAN parked",
    "SCAN deliveries",
)

PLANS = {
    "existing": {"SEARCH jobs USING by_id", "SEARCH jobs USING by_key"},
    "submit_tags": {"SEARCH jobs USING by_id"},
    "promote": {"SEARCH jobs USING due", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "dispatch": {"SEARCH jobs USING unticketed (queue=? AND type=?)", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "expire_tickets": {"SEARCH jobs USING ticketed"},
    "expire_overdue_tickets": {"SEARCH jobs USING by_id"},
    "claim": {"SEARCH jobs USING by_id"},
    "claim_next": {
        "SEARCH jobs USING unticketed (queue=? AND type=? AND priority>?)",
        "SEARCH jobs USING INTEGER PRIMARY KEY",
    },
    "next_in_line": {"SEARCH jobs USING unticketed (queue=? AND type=?)"},
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
    "backlog": {"SEARCH jobs USING unticketed (queue=? AND type=?)"},
    "next_due": {"SEARCH jobs USING due"},
    "due_before": {"SEARCH jobs USING due"},
    "oldest_due": {
        "SEARCH jobs USING ticketed",
        "SEARCH jobs USING unticketed (queue=? AND type=? AND priority=?)",
    },
    "list_newest": {"SEARCH jobs USING INTEGER PRIMARY KEY"},
    "list_by_type": {"SEARCH jobs USING by_type"},
    "list_by_queue": {"SEARCH jobs USING by_queue"},
    "list_by_tag": {"SEARCH job_tags USING PRIMARY KEY", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "list_unhappy": {"SEARCH jobs USING unhappy"},
    "prune": {"SEARCH jobs USING finished", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "prune_anchors": {"SEARCH jobs USING finished_anchors", "SEARCH jobs USING INTEGER PRIMARY KEY"},
    "prune_tags": {"SEARCH job_tags USING tags_of"},
    "prune_logs": {"SEARCH job_logs USING PRIMARY KEY"},
    "log_end": {"SEARCH jobs USING by_id", "SEARCH job_logs USING PRIMARY KEY"},
    "read_log": {"SEARCH jobs USING by_id", "SEARCH job_logs USING PRIMARY KEY"},
    "replace_schedule": {"SEARCH schedules USING schedules_by_name"},
    "schedules_by_name": {"SEARCH schedules USING schedules_by_name"},
    "list_schedules": {"SEARCH schedules USING schedules_by_name"},
    "next_tick": {"SEARCH schedules USING ticking"},
    "tick": {"SEARCH schedules USING schedules_by_name"},
    "ticks": {"SEARCH ticks USING PRIMARY KEY (schedule=? AND tick_at<?)"},
    "drop_ticks": {"SEARCH ticks USING PRIMARY KEY"},
    "has_keys_before": {"SEARCH jobs USING by_id"},
    "prune_ticks": {"SEARCH ticks USING ticks_by_age"},
    "workers": {"SEARCH workers USING workers_by_age (seen_at>? AND seen_at<?)"},
    "prune_workers": {"SEARCH workers USING workers_by_age (seen_at<?)", "SEARCH workers USING PRIMARY KEY"},
    "read_journal": {"SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)"},
    "unfolded": {"SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)"},
    "entry_at": {"SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)"},
    "oldest_entries": {"SEARCH journal USING INTEGER PRIMARY KEY (rowid<?)"},
    "prune_journal": {"SEARCH journal USING INTEGER PRIMARY KEY (rowid<?)"},
    "read_history": {"SEARCH history USING PRIMARY KEY (span=? AND at>?)"},
    "history_until": {"SEARCH history USING PRIMARY KEY (span=? AND at<?)"},
    "drop_history": {"SEARCH history USING PRIMARY KEY (span=? AND at<?)"},
    "parked": {"SEARCH parked USING parked_by_time (subscription=? AND state=? AND due_at<?)"},
    "parked_of": {"SEARCH parked USING parked_by_job (subscription=? AND job=?)"},
    "count_parked": {"SEARCH parked USING parked_by_time (subscription=?)"},
    "last_delivery": {"SEARCH deliveries USING deliveries_of (subscription=?)"},
    "deliveries": {"SEARCH deliveries USING deliveries_of (subscription=? AND at<?)"},
    "prune_deliveries": {"SEARCH deliveries USING deliveries_by_age (at<?)"},
    "drop_parked": {"SEARCH parked USING parked_by_"},
    "drop_deliveries": {"SEARCH deliveries USING deliveries_of"},
}
"""What each statement must use. None of these may sort, or scan a table."""

SORTED_PLANS = {
    "overdue_tickets": {"SEARCH jobs USING ticketed (queue=? AND ticket_until>? AND ticket_until<?)"},
    "list_scheduled": {"SCAN jobs USING due"},
    "list_running": {"SCAN jobs USING leases"},
    "running_by_worker": {"SCAN jobs USING leases"},
    "list_queued": {"SCAN jobs USING unticketed", "SCAN jobs USING ticketed"},
}
"""Walks through a small index that are sorted afterwards."""

DUE_PLAN = {
    "SEARCH schedules USING ticking (next_tick_at>? AND next_tick_at<?)",
    "SEARCH schedules USING pending (pending_tick_at>?)",
    "SCAN schedules USING completing",
    "SEARCH schedules USING INTEGER PRIMARY KEY (rowid=?)",
    "SEARCH jobs USING active_of (schedule=?)",
    "SEARCH jobs USING completed_of (schedule=? AND completed_at>?)",
}
"""What is due is found without reading what is not."""


@pytest.fixture(scope="module", params=["as it comes", "analyzed"])
def connection(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    asyncio.run(fill(path, analyzed=request.param == "analyzed"))
    reader = open_reader(path)
    yield reader
    reader.close()


async def fill(path: Path, *, analyzed: bool) -> None:
    """Some jobs in every state, thousands that have ended, and hundreds of schedules."""
    clock = SimulatedClock()
    store = await SqliteStore.open(path, clock=clock)
    stage = StoreStage(store, clock)
    await populate(stage)
    answers = await store.submit([stage.new(tags=("red",)) for _ in range(3000)], TICKET)
    await store.settle(
        [
            Settlement(job=claim.job, fence=claim.fence, state=State.SUCCEEDED)
            for claim in await stage.claim(*(answer.job.id for answer in answers))
        ]
    )
    for number in range(300):
        await tick(stage, await put(stage, f"s{number}", when=Every(MINUTE, after_completion=number % 2 > 0)))
    await store.number_entries()
    if analyzed:
        await store.writer.run(lambda tx: tx.connection.execute("ANALYZE").fetchall())
    await store.close()


@pytest.mark.parametrize("name", PLANS)
def test_a_hot_statement_uses_its_index(connection: apsw.Connection, name: str) -> None:
    steps = plan(connection, name)
    for wanted in PLANS[name]:
        assert any(step.startswith(wanted) for step in steps), steps
    assert not any(step.startswith(SCANS) or SORTS in step for step in steps), steps


@pytest.mark.parametrize("name", SORTED_PLANS)
def test_a_walk_by_state_reads_only_that_state(connection: apsw.Connection, name: str) -> None:
    scans = {step for step in plan(connection, name) if "jobs" in step}
    assert scans == SORTED_PLANS[name]


def test_due_schedules_are_found_each_by_its_reason(connection: apsw.Connection) -> None:
    found = plan(connection, "due_schedules")
    assert {step for step in found if " schedules " in step or " jobs " in step} == DUE_PLAN
    # The three reasons are merged and put in order; nothing is sorted before its limit is reached.
    assert [step for step in found if SORTS in step] == [f"USE {SORTS} FOR GROUP BY", f"USE {SORTS} FOR ORDER BY"]


@pytest.mark.parametrize("size", [2, 32, ROWS_MAX])
def test_many_schedules_are_looked_up_one_by_one(connection: apsw.Connection, size: int) -> None:
    found = list(steps(connection, Bulk("tick").sized(size)))
    assert [step for step in found if "schedules" in step] == ["SEARCH schedules USING schedules_by_name (name=?)"]
    assert not any("AUTOMATIC" in step for step in found), found


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
