"""Every hot statement walks the index it was written for, whatever the planner has been told about the data."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from penstock.model.clock import to_millis
from penstock.model.job import Retention, Settlement
from penstock.model.journal import DeliveryRecord, Parked, RelayState, RelayWrite
from penstock.model.lifecycle import State
from penstock.store.journal import relay_role
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.partitions import DAY, Partition
from penstock.store.postgres.statements import load
from penstock.testing.clock import START, SimulatedClock
from penstock.testing.store_contract.reads import populate
from penstock.testing.store_contract.registry import worker
from penstock.testing.store_contract.stage import TICKET, StoreStage
from tests.postgres import VERSIONS, WHOLE_INDEXES, server

PLANS = {
    "submit": {"admission_pkey", "ended_pkey"},
    "submit_keyed": {"admission_pkey", "ended_pkey", "jobs_pkey"},
    "submit_one": {"admission_pkey", "ended_pkey", "jobs_pkey"},
    "promote": {"due", "jobs_pkey"},
    "dispatch": {"unticketed"},
    "expire_tickets": {"away", "jobs_pkey"},
    "expire_overdue_tickets": {"jobs_pkey"},
    "overdue_tickets": {"away"},
    "claim": {"jobs_pkey"},
    "claim_next": {"unticketed"},
    "claim_merged": {"unticketed"},
    "renew": {"jobs_pkey"},
    "settle": {"jobs_pkey"},
    "settle_later": {"jobs_pkey"},
    "release": {"jobs_pkey"},
    "release_marked": {"jobs_pkey"},
    "reclaim": {"away", "jobs_pkey"},
    "cancel": {"jobs_pkey"},
    "expire": {"expiring", "jobs_pkey"},
    "fences": {"jobs_pkey", "ended_pkey"},
    "keys": {"keys_pkey"},
    "jobs_by_id": {"jobs_pkey", "ended_pkey"},
    "due_summary": {"unticketed", "due"},
    "due_before": {"due"},
    "running_by_worker": {"away"},
    "oldest_due": {"unticketed", "away"},
    "list_lines": {"later_lines", "unticketed", "away", "ended_lines"},
    "list_by_tag": {"job_tags_pkey", "jobs_pkey", "ended_pkey"},
    "tick": {"schedules_pkey"},
    "due_schedules": {"ticking", "pending", "completing", "schedules_pkey", "active_of", "completed_of"},
    "next_tick": {"ticking"},
    "find_keyed": {"admission_pkey", "keys_pkey"},
    "ticks": {"ticks_pkey"},
    "prune_ticks": {"ticks_by_age"},
    "workers": {"workers_by_age"},
    "prune_workers": {"workers_by_age", "workers_pkey"},
    "owned": {"jobs_pkey"},
    "log_end": {"job_logs_pkey"},
    "read_log": {"job_logs_pkey", "jobs_pkey", "ended_pkey"},
    "prune": {"finished", "ended_pkey", "keys_pkey", "tags_of", "job_logs_pkey"},
    "prune_anchors": {"finished_anchors", "ended_pkey", "keys_pkey", "tags_of", "job_logs_pkey"},
    "partition_unfit": {"ended_pkey"},
    "partition_past": {"finished", "finished_anchors", "ended_pkey"},
    "clear_partition": {"ended_pkey", "keys_pkey", "tags_of", "job_logs_pkey"},
    "counts": {"fresh"},
    "find_fresh": {"journal_head_pkey", "fresh"},
    "lock_journal": {"journal_head_pkey"},
    "number_entries": {"journal_head_pkey", "fresh"},
    "read_journal": {"journal_head_pkey", "numbered"},
    "find_number": {"journal_head_pkey", "numbered"},
    "prune_entries": {"journal_head_pkey", "numbered"},
    "read_history": {"history_pkey"},
    "fold_history": {"history_pkey"},
    "prune_history": {"history_pkey"},
    "prune_deliveries": {"deliveries_by_age"},
    "relay_state": {"relays_pkey"},
    "hold_role": {"roles_pkey"},
    "unpark": {"parked_pkey"},
    "parked": {"parked_due"},
    "parked_before": {"parked_due"},
    "parked_of": {"parked_pkey"},
    "last_delivery": {"deliveries_of"},
    "extend_delivery": {"deliveries_pkey"},
    "deliveries": {"deliveries_of"},
}
"""The indexes that each statement must use, and no others; none of these may scan a table of jobs."""

IN_ORDER = ("claim", "renew", "settle", "settle_later", "release", "release_marked")
"""What locks its rows in the order of their ids."""

# As the store sets its own connections: one plan for all values.
SET = "-c enable_seqscan=off -c plan_cache_mode=force_generic_plan"

SCAN = re.compile(
    r"Seq Scan on (?:jobs|ended|ended_\w+|keys|job_tags|job_logs|workers|journal|history|parked|deliveries)\b"
)
IN_LINE = re.compile(r"using (?:unticketed|due|expiring) on")
JOIN = re.compile(r"(?:Hash|Merge) (?:\w+ )*Join")
INDEX = re.compile(r"(?:using|Index Scan on) (\w+)")
NAMES = re.compile(rb"%\((\w+)\)s")
PARTITION = re.compile(r" on (ended_\d+|ended_default)\b")
DAYS = 8
DAY_3 = to_millis(START) // DAY + 2
NEVER = Retention(timedelta(days=9999), timedelta(days=9999))
LEAST, MOST = "00000000-0000-7000-8000-000000000000", "ffffffff-ffff-7fff-bfff-ffffffffffff"
ALL = {"first": LEAST, "last": MOST, "past": MOST, "job": LEAST}
"""Between these are all partitions; for NULL a plan has none."""

# The planner takes the true size of a file, and how many rows fill it from here.
MILLIONS = "UPDATE pg_class SET reltuples = 5e6 WHERE relname LIKE 'ended\\_2%' AND relkind = 'r'"


@pytest.fixture(
    scope="module",
    params=[(version, told) for version in VERSIONS for told in ("as it comes", "analyzed", "millions ended")],
)
def connection(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    version, told = request.param
    url = server(version).database("plans")
    asyncio.run(fill(url))
    with psycopg.connect(url, autocommit=True, prepare_threshold=None, options=SET) as connection:
        if told != "as it comes":
            connection.execute("ANALYZE")
        if told == "millions ended":
            connection.execute(MILLIONS)
        yield connection


async def fill(url: str) -> None:
    """Some jobs in every state, and thousands that have ended in the course of some days."""
    clock = SimulatedClock()
    store = await PostgresStore.open(url, clock=clock)
    stage = StoreStage(store, clock)
    await populate(stage)
    for _ in range(DAYS):
        await end_some(stage)
        clock.advance(timedelta(days=1))
        await store.prune(NEVER, 0)
    await store.submit([stage.new(ticketed=number % 2 > 0) for number in range(2000)], TICKET)
    await asyncio.gather(*(store.put_worker(worker(stage, f"w{number}")) for number in range(300)))
    await deliver(stage)
    await store.close()


async def deliver(stage: StoreStage) -> None:
    """A relay that has parked events and kept a log."""
    fence = await stage.store.acquire_role(relay_role("orders"), "me", TICKET)
    assert fence is not None
    parked = [Parked(job=stage.new_id(), version=1, event=b"{}", due_at=stage.clock.now()) for _ in range(2000)]
    at = stage.clock.now()
    log = [DeliveryRecord(at=at, delivered=False, first="a", last="a", events=1) for _ in range(200)]
    write = RelayWrite(state=RelayState(), parked=parked, log=log)
    assert await stage.store.shards()[0].save_relay("orders", fence, write)


async def end_some(stage: StoreStage) -> None:
    answers = await stage.store.submit([stage.new(tags=("red",)) for _ in range(400)], TICKET)
    claims = await stage.claim(*(answer.job.id for answer in answers))
    await stage.store.settle([Settlement(job=claim.job, fence=claim.fence, state=State.SUCCEEDED) for claim in claims])


@pytest.mark.parametrize("name", PLANS)
def test_a_hot_statement_uses_its_indexes(connection: psycopg.Connection[Any], name: str) -> None:
    steps = plan(connection, name)
    whole = dict(connection.execute(WHOLE_INDEXES).fetchall())
    assert {whole.get(found, found) for step in steps for found in INDEX.findall(step)} == PLANS[name], steps
    assert not any(SCAN.search(step) for step in steps), steps


@pytest.mark.parametrize("name", IN_ORDER)
def test_rows_are_locked_in_the_order_they_are_given(connection: psycopg.Connection[Any], name: str) -> None:
    """One look-up after the other, even where the planner would rather not."""
    connection.execute("SET enable_nestloop = off")
    steps = plan(connection, name)
    connection.execute("RESET enable_nestloop")
    assert not any("Hash Join" in step or "Merge Join" in step for step in steps), steps


@pytest.mark.parametrize("name", ["promote", "dispatch", "claim_next", "claim_merged", "expire"])
def test_what_is_next_is_found_without_sorting_what_is_not(connection: psycopg.Connection[Any], name: str) -> None:
    """Between a walk along its index and the limit that ends it there is nothing that would read it to its end."""
    steps = plan(connection, name)
    walks = [number for number, step in enumerate(steps) if IN_LINE.search(step)]
    assert walks
    for walk in walks:
        limit = max(number for number, step in enumerate(steps[:walk]) if "Limit" in step)
        assert not any("Sort" in step for step in steps[limit:walk]), steps


def test_the_most_urgent_of_several_lines_is_claimed_and_nothing_else_locked(
    connection: psycopg.Connection[Any],
) -> None:
    """Levels come sorted into a loop that stops once there is enough."""
    steps = [step.strip(" ->") for step in plan(connection, "claim_merged")]
    levels = next(number for number, step in enumerate(steps) if step.startswith("Sort Key: level.priority DESC"))
    assert steps[levels - 3 : levels] == ["Limit", "Nested Loop", "Sort"], steps
    assert steps.count("LockRows") == 1
    assert steps.index("LockRows") > levels


@pytest.mark.parametrize("name", ["dispatch", "claim_next", "claim_merged", "due_summary", "oldest_due", "list_lines"])
def test_of_the_line_only_its_ends_are_read(connection: psycopg.Connection[Any], name: str) -> None:
    """Not all of it at once, whatever is then sorted or joined."""
    steps = plan(connection, name)
    assert not any("Bitmap Index Scan on unticketed" in step for step in steps), steps
    assert not any(JOIN.search(step) for step in steps), steps


@pytest.mark.parametrize("name", ["jobs_by_id", "fences", "submit", "submit_keyed", "submit_one", "read_log"])
def test_a_job_that_is_known_by_its_id_is_sought_in_one_partition(
    connection: psycopg.Connection[Any], name: str
) -> None:
    ((job,),) = connection.execute("SELECT id::text FROM penstock.ended_20300103 LIMIT 1").fetchall()
    steps = plan(connection, name, {"first": job, "last": job, "job": job})
    assert partitions(steps) == {"ended_20300103"}, steps


@pytest.mark.parametrize("name", ["partition_past", "clear_partition"])
def test_of_a_partition_that_is_to_be_dropped_no_other_is_read(connection: psycopg.Connection[Any], name: str) -> None:
    assert partitions(plan(connection, name, dict(Partition(DAY_3).range))) == {"ended_20300103"}


@pytest.mark.parametrize(("name", "sorts"), [("list_lines", 2), ("list_by_tag", 0), ("prune", 0)])
def test_partitions_are_merged_in_order_without_sorting_them(
    connection: psycopg.Connection[Any], name: str, sorts: int
) -> None:
    """Of lines only the newest of each are sorted, and all that is away where the planner thinks it is little."""
    steps = plan(connection, name)
    assert len(partitions(steps)) > DAYS
    assert sum("Sort" in step and "Key" not in step for step in steps) <= sorts, steps


def partitions(steps: list[str]) -> set[str]:
    return {found for step in steps for found in PARTITION.findall(step)}


def plan(connection: psycopg.Connection[Any], name: str, given: Mapping[str, str] | None = None) -> list[str]:
    """The plan for any parameters, besides those given."""
    text = load(name)
    order = list(dict.fromkeys(NAMES.findall(text)))
    for number, parameter in enumerate(order, 1):
        text = text.replace(b"%(" + parameter + b")s", b"$" + str(number).encode())
    known = {**ALL, **(given or {})}
    values = [f"'{known[word]}'" if (word := parameter.decode()) in known else "NULL" for parameter in order]
    scope = f"({', '.join(values)})" if values else ""
    connection.execute("DEALLOCATE ALL")
    connection.execute(b"PREPARE planned AS " + text)
    explained = connection.execute(f"EXPLAIN (COSTS OFF) EXECUTE planned{scope}".encode())
    return [step for (step,) in explained]
