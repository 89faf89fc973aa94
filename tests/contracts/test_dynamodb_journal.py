"""The journal of DynamoDB: each event is told once, wherever a process dies, and however many number at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import settings

from penstock.model.clock import EARLIEST, LATEST, to_millis
from penstock.model.errors import StoreUnavailable
from penstock.model.journal import EventRetention, History, HistoryFilter
from penstock.store.dynamodb import history, journal
from penstock.store.dynamodb.journal_items import entry_key
from penstock.store.dynamodb.schema import UNTOLD
from penstock.store.dynamodb.values import ItemKey
from penstock.store.seam import Shard
from penstock.testing.clock import SimulatedClock
from penstock.testing.history_machine import history_machine
from penstock.testing.journal import JournalReader, depths, lines_of
from penstock.testing.store_contract.stage import MINUTE, SECOND, TICKET, StoreStage
from penstock.testing.store_model import KEEP
from tests.dynamodb import Processes, new_store, new_table
from tests.dynamodb_faults import Died, Faults, Gate, LateIndex, table_of


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
async def processes(clock: SimulatedClock) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as opened:
        yield Processes(clock, opened)


async def live(stage: StoreStage) -> None:
    """Some jobs, of which one has ended, one runs under another type, and one waits."""
    await stage.end_job()
    lease = await stage.run_job()
    await stage.store.retype([lease], "scan")
    await stage.submit(queue="other")


async def told_once(store: Shard, reader: JournalReader | None = None) -> JournalReader:
    """A reader that has read everything, in order and without a gap."""
    reader = reader or JournalReader(store)
    await reader.read()
    reader.check(await StoreStage(store, SimulatedClock()).all_jobs())
    numbers = [entry.number for entry in reader.entries]
    assert numbers == sorted(set(numbers))
    return reader


async def adds_up(store: Shard) -> None:
    """The history counts the jobs that there are and have not ended, and its moves lead to them."""
    history = await counts_right(store)
    assert {line for line in depths(history) if not line[2].terminal} == set()


async def counts_right(store: Shard) -> History:
    history = await store.read_history(HistoryFilter(EARLIEST, LATEST))
    there = lines_of(await store.counts())
    assert lines_of(history.counts) == {line: jobs for line, jobs in there.items() if not line[2].terminal}
    return history


@pytest.mark.parametrize("after", [False, True])
async def test_wherever_a_pass_dies_the_next_one_tells_each_event_once(processes: Processes, after: bool) -> None:
    first, second = await processes.stage(), await processes.stage()
    faults, reader = Faults(first.store), JournalReader(second.store)
    for write in range(1, 20):
        await live(first)
        processes.clock.advance(MINUTE)
        with faults.die(write, after=after):
            try:
                await first.store.number_entries()
                break
            except Died:
                pass
        await live(first)
        await told_once(second.store, reader)
        await adds_up(second.store)
    assert write > 4, "entries, what was copied, the head and the history are writes of their own"


async def test_of_passes_at_the_same_time_each_event_is_in_one(processes: Processes) -> None:
    stages = [await processes.stage() for _ in range(4)]
    reader = JournalReader(stages[0].store)
    for _ in range(4):
        await asyncio.gather(*(live(stage) for stage in stages[:2]))
        await asyncio.gather(*(stage.store.number_entries() for stage in stages), live(stages[2]))
        processes.clock.advance(SECOND * 11)
    await told_once(stages[0].store, reader)
    await adds_up(stages[3].store)


async def test_a_pass_that_another_has_overtaken_writes_nothing(processes: Processes) -> None:
    slow, fast = await processes.stage(), await processes.stage()
    reader = JournalReader(fast.store)
    await live(fast)

    async def overtake() -> None:
        for _ in range(2):
            await told_once(fast.store, reader)
            await live(fast)

    with Faults(slow.store).before(1, overtake):
        await slow.store.number_entries()
    await told_once(fast.store, reader)


async def test_entries_are_added_to_the_history_once_by_whoever_is_first(processes: Processes) -> None:
    slow, fast = await processes.stage(), await processes.stage()
    for _ in range(2):
        # The first ones are added at once, the others after some seconds.
        await live(fast)
        await fast.store.number_entries()

    async def overtake() -> None:
        for _ in range(2):
            await fast.store.prune_journal(EventRetention(), 99)
            processes.clock.advance(MINUTE)
            await live(fast)
            await fast.store.number_entries()

    with Faults(slow.store).before(1, overtake):
        await slow.store.prune_journal(EventRetention(), 99)
    await adds_up(fast.store)


async def test_passes_whose_answers_are_lost_tell_each_event_once(processes: Processes) -> None:
    stage, other = await processes.stage(), await processes.stage()
    faults = Faults(stage.store)
    for every in (1, 2, 3):
        await live(other)
        processes.clock.advance(MINUTE)
        with faults.lose_answers(every):
            for _ in range(5):
                with suppress(StoreUnavailable):
                    await stage.store.number_entries()
        await told_once(other.store)
        await adds_up(other.store)


async def test_an_index_that_is_late_loses_and_repeats_nothing(processes: Processes) -> None:
    stage = await processes.stage()
    index = LateIndex(stage.store, UNTOLD)
    leases = [await stage.run_job() for _ in range(3)]
    partition = f"{stage.store.shard:03x}#untold"
    await index.freeze(partition)
    reader = await told_once(stage.store)
    await stage.settle(leases[0])
    new = await stage.submit()
    await reader.read()
    assert [told.version for told in reader.told[leases[0].job]] == [1, 2, 3], "it is found by its old place"
    assert new.id not in reader.told
    index.let_go()
    await told_once(stage.store, reader)


async def test_a_move_that_was_decided_on_an_older_reading_tells_nothing_again(processes: Processes) -> None:
    worker, other = await processes.stage(), await processes.stage()
    lease = await worker.run_job()
    reader = await told_once(other.store)
    # The worker's process still has the head with everything that it had to tell.
    await worker.settle(lease)
    await told_once(other.store, reader)


async def test_a_slow_pass_does_not_set_back_what_another_has_noted(processes: Processes) -> None:
    worker, slow, fast = await processes.stage(), await processes.stage(), await processes.stage()
    lease = await worker.run_job()
    gate = Gate(slow.store)
    passing = asyncio.ensure_future(slow.store.number_entries())
    await gate.arrival()
    await worker.store.release([lease])
    gate.let_through()
    await gate.arrival()
    # It has read the job anew, and is about to note what it has copied; meanwhile another copies the rest.
    reader = await told_once(fast.store)
    gate.let_all_through()
    await passing
    await worker.claim(lease.job)
    await told_once(fast.store, reader)


async def test_a_pass_of_many_jobs_is_cut_into_transactions_that_fit(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PASS_JOBS", 30)
    monkeypatch.setattr(journal, "PASS_BYTES", 1000)
    monkeypatch.setattr(history, "FOLD_SPANS", 7)
    stage = await processes.stage()
    news = [stage.new(queue=f"q{number % 20}") for number in range(100)]
    await stage.store.submit(news, TICKET)
    await stage.store.cancel([new.id for new in news[:30]])
    reader = await told_once(stage.store)
    assert len(reader.told) == len(news)
    assert len((await table_of(stage.store).query("000#entries")).items) > len(news) / 30
    processes.clock.advance(MINUTE)
    await adds_up(stage.store)


async def test_calls_at_the_same_time_share_a_pass(processes: Processes) -> None:
    stage = await processes.stage()
    await live(stage)
    bill: dict[str, float] = {}
    table_of(stage.store).bill = bill
    numbers = await asyncio.gather(*(stage.store.number_entries() for _ in range(20)))
    assert set(numbers) == {await stage.store.number_entries()}
    assert bill["Query"] < 20 * 0.5, "twenty passes would each look into the index"


async def test_jobs_that_have_moved_while_no_events_were_kept_are_counted_again(clock: SimulatedClock) -> None:
    table = new_table()
    async with new_store(clock, table=table) as keeping:
        stage = StoreStage(keeping, clock)
        await live(stage)
        waiting = await stage.submit()
        await adds_up(keeping)
        async with new_store(clock, table=table, keep_events=False) as silent:
            await StoreStage(silent, clock).claim(waiting.id)
            await stage.end_job()
            await silent.number_entries()
        clock.advance(SECOND)
        await live(stage)
        await keeping.number_entries()
        await counts_right(keeping)
        clock.advance(MINUTE)
        await live(stage)
        await counts_right(keeping)


async def test_a_reader_is_told_of_entries_that_have_expired_unpruned(processes: Processes) -> None:
    stage = await processes.stage()
    heads = []
    for _ in range(3):
        await stage.submit()
        heads.append(await stage.store.number_entries())
        processes.clock.advance(SECOND)
    page = await stage.store.read_journal(0, 99)
    assert (page.oldest, len(page.entries)) == (1, 3)
    await expire(stage.store, heads[1])
    assert [one.number for one in (await stage.store.read_journal(0, 99)).entries] == [1]
    page = await stage.store.read_journal(heads[0], 99)
    assert (page.oldest, [one.number for one in page.entries]) == (heads[2], [heads[2]])
    await expire(stage.store, heads[2])
    page = await stage.store.read_journal(heads[0], 99)
    assert (page.oldest, list(page.entries)) == (heads[2] + 1, [])


async def test_entries_and_spans_are_given_a_time_to_live_beyond_their_retention(clock: SimulatedClock) -> None:
    keep = EventRetention(events=timedelta(days=3), history=timedelta(days=30))
    async with new_store(clock, event_retention=keep) as store:
        await StoreStage(store, clock).end_job()
        clock.advance(MINUTE)
        await store.number_entries()
        now = to_millis(clock.now()) // 1000
        kept = {"entries": keep.events, "history": keep.history}
        for partition, span in kept.items():
            page = await store.table.query(f"000#{partition}")
            assert page.items
            assert all(item["ttl"] > now + span.total_seconds() for item in page.items)


async def expire(store: Shard, number: int) -> None:
    """Delete an item of the journal, as DynamoDB does."""
    await table_of(store).delete(ItemKey("000#entries", entry_key(number)))


TestDynamoHistoryMachine = history_machine(partial(new_store, retention=KEEP)).TestCase
TestDynamoHistoryMachine.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)
