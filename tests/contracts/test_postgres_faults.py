"""The PostgreSQL store among many callers and in outages: nobody waits for ever, and nothing acknowledged is lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta

import psycopg
import pytest

from penstock.model.errors import BrokerUnavailable, Invalid, InvalidSetting, StoreUnavailable
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import BacklogKey, Claim, Lease, NewJob, Retention, Settlement, Ticket
from penstock.model.lifecycle import State
from penstock.model.submission import Held
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.sessions import NUMBER_EVERY
from penstock.store.seam import Share
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import LEASE, TICKET, StoreStage
from servers import FaultProxy, Postgres
from servers.proxy import Fault
from tests.postgres import database, new_store, started
from tests.postgres import server as shared_server

SHARD = ShardId(0)
MAIL = BacklogKey("mail", "mail")
SHORT = timedelta(seconds=1)
LONG = 60.0
"""Seconds after which a test says that something hangs."""

UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables, pg_sleep(0.01) WHERE relname = 'jobs'"


def new(rng: random.Random, **fields: object) -> NewJob:
    fields.setdefault("id", new_job_id(0, SHARD, rng))
    return NewJob(type="mail", queue="mail", **fields)  # type: ignore[arg-type]


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    async with new_store(18, None) as store:
        yield store


@pytest.fixture
async def other(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """A second process's view of the same database."""
    other = await PostgresStore.open(database(18))
    yield other
    await other.close()


@pytest.fixture
def server() -> Iterator[Postgres]:
    """One that a test may kill."""
    with started(18) as server:
        yield server


@pytest.fixture
async def silenced(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """A store whose server has just fallen silent."""
    port = psycopg.conninfo.conninfo_to_dict(database(18))["port"]
    with FaultProxy(int(str(port))) as proxy:
        far = await PostgresStore.open(f"postgresql://penstock@127.0.0.1:{proxy.port}/jobs", deadline=SHORT)
        proxy.fault = Fault.SILENT
        yield far
        await far.close()


def settlements(claims: list[Claim]) -> list[Settlement]:
    return [Settlement(job=claim.job, fence=claim.fence, state=State.SUCCEEDED) for claim in claims]


async def submitted(store: PostgresStore, jobs: int, seed: int = 1) -> list[JobId]:
    rng = random.Random(seed)
    answers = await store.submit([new(rng, ticketed=True) for _ in range(jobs)], TICKET)
    return [answer.job.id for answer in answers]


async def test_many_workers_on_the_same_jobs_neither_wait_for_each_other_nor_share(
    store: PostgresStore, other: PostgresStore
) -> None:
    """Eight of them, in batches that overlap and come in any order, beside a reaper, a canceller and renewals."""
    jobs = await submitted(store, 400)
    before = deadlocks()
    async with asyncio.timeout(LONG):
        claims = await asyncio.gather(*(work(one, jobs, seed) for seed, one in enumerate((store, other) * 4)))
    claimed = [claim.job for batch in claims for claim in batch]
    ended = await store.get(jobs)
    assert sorted(claimed) == sorted(jobs)
    assert {job.state for job in ended if job} == {State.SUCCEEDED}
    assert {(count.state, count.jobs) for count in await store.counts()} == {(State.SUCCEEDED, 400)}
    assert deadlocks() == before


async def work(store: PostgresStore, jobs: list[JobId], seed: int) -> list[Claim]:
    """Claim whatever is still there, settling what others hold as well: their fences are the same."""
    rng = random.Random(seed)
    claimed: list[Claim] = []
    for _ in range(8):
        batch = rng.sample(jobs, 120)
        mine = await store.claim([Ticket(SHARD, job, "mail", "mail") for job in batch], f"w{seed}", LEASE)
        claimed += mine
        await store.renew(f"w{seed}", [Lease(job, 1) for job in rng.sample(batch, 60)], LEASE)
        await store.settle([Settlement(job=job, fence=1, state=State.SUCCEEDED) for job in rng.sample(batch, 90)])
        await store.reclaim(100)
    rest = await store.claim([Ticket(SHARD, job, "mail", "mail") for job in jobs], f"w{seed}", LEASE)
    await store.settle([Settlement(job=job, fence=1, state=State.SUCCEEDED) for job in jobs])
    return claimed + rest


def deadlocks() -> int:
    with psycopg.connect(database(18)) as connection:
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'jobs'").fetchone()
    assert row is not None
    return int(row[0])


async def test_one_of_two_processes_gets_a_ticket(store: PostgresStore, other: PostgresStore) -> None:
    jobs = await submitted(store, 200)
    tickets = [Ticket(SHARD, job, "mail", "mail") for job in jobs]
    both = [one.claim(batch, "w", LEASE) for one in (store, other) for batch in (tickets, tickets[::-1])]
    claims = [claim.job for batch in await asyncio.gather(*both) for claim in batch]
    assert sorted(claims) == sorted(jobs)


async def test_one_of_two_processes_gets_a_key(store: PostgresStore, other: PostgresStore) -> None:
    """In batches that name the same keys in another order."""
    rng = random.Random(5)
    before = deadlocks()

    def batch() -> list[NewJob]:
        return [new(rng, key=f"k{number}") for number in rng.sample(range(100), 100)]

    calls = [one.submit(batch(), TICKET) for one in (store, other) * 4]
    answers = [answer for answers in await asyncio.gather(*calls) for answer in answers]
    assert len({answer.job.id for answer in answers}) == 100
    assert sum(answer.event is not None for answer in answers) == 100
    assert deadlocks() == before


async def test_batches_in_opposite_orders_do_not_wait_for_each_other(
    store: PostgresStore, other: PostgresStore
) -> None:
    """Ten times, as the first of two may be through before the second has come."""
    before = deadlocks()
    async with asyncio.timeout(LONG):
        for seed in range(10):
            jobs = await submitted(store, 400, seed)
            tickets = [Ticket(SHARD, job, "mail", "mail") for job in jobs]
            halves = await asyncio.gather(store.claim(tickets, "w", LEASE), other.claim(tickets[::-1], "w", LEASE))
            claims = [claim for half in halves for claim in half]
            leases = [Lease(claim.job, claim.fence) for claim in claims]
            await asyncio.gather(store.renew("w", leases, LEASE), other.renew("w", leases[::-1], LEASE))
            both = store.settle(settlements(claims)), other.settle(settlements(claims)[::-1])
            settled = [one for batch in await asyncio.gather(*both) for one in batch]
            assert sum(one.event is not None for one in settled) == 400
    assert deadlocks() == before


async def test_one_of_two_processes_inserts_a_repeated_batch(store: PostgresStore, other: PostgresStore) -> None:
    rng = random.Random(6)
    for _ in range(10):
        batch = [new(rng) for _ in range(100)]
        both = await asyncio.gather(store.submit(batch, TICKET), other.submit(batch[30:], TICKET))
        answers = [answer for answers in both for answer in answers]
        assert [answer.job.id for answer in answers] == [one.id for one in (*batch, *batch[30:])]
        assert sum(answer.event is not None for answer in answers) == 100
    assert sum(count.jobs for count in await store.counts()) == 1000


async def test_two_processes_claim_from_one_line(store: PostgresStore, other: PostgresStore) -> None:
    """Beside claims by tickets in another order, and nobody waits for ever."""
    before, rng = deadlocks(), random.Random(7)
    jobs = [answer.job.id for answer in await store.submit([new(rng, ticketed=False) for _ in range(400)], TICKET)]
    tickets = [Ticket(SHARD, job, "mail", "mail") for job in jobs[::-1]]
    calls = [one.claim_next([Share("mail", ["mail"], 30)], "w", LEASE) for one in (store, other) * 4]
    calls.append(other.claim(tickets[100:300], "w", LEASE))
    taken, cancelled = await asyncio.gather(asyncio.gather(*calls), store.cancel(jobs[::7]))
    rest = await store.claim_next([Share("mail", ["mail"], 400)], "w", LEASE)
    claims = [claim.job for batch in (*taken, rest) for claim in batch]
    ended = [one for one in cancelled if one.job and one.job.state is State.CANCELLED]
    assert len(claims) == len(set(claims)) == 400 - len(ended)
    assert deadlocks() == before


async def test_a_job_that_has_ended_is_not_submitted_again(store: PostgresStore) -> None:
    one = new(random.Random(1))
    await store.submit([one], TICKET)
    await store.settle(settlements(await store.claim([Ticket(SHARD, one.id, "mail", "mail")], "w", LEASE)))
    (again,) = await store.submit([one], TICKET)
    assert (again.job.state, again.event, again.conflict) == (State.SUCCEEDED, None, False)


async def test_a_cancel_beside_a_retry_is_never_forgotten(store: PostgresStore, other: PostgresStore) -> None:
    """Whichever comes first, the job is cancelled in the end, and no attempt starts."""
    for job in await submitted(store, 30):
        (claim,) = await store.claim([Ticket(SHARD, job, "mail", "mail")], "w", LEASE)
        again = Settlement(job=job, fence=claim.fence, state=State.SCHEDULED, retry_in=timedelta())
        (settled,), _ = await asyncio.gather(store.settle([again]), other.cancel([job]))
        (found,) = await store.get([job])
        assert found is not None
        assert (settled.loss, found.state) == (None, State.CANCELLED)


async def test_one_bad_job_hurts_no_other_caller(store: PostgresStore) -> None:
    rng = random.Random(2)
    calls = [store.submit([new(rng, priority=99 if number == 3 else 5)], TICKET) for number in range(8)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, Invalid) for answer in answers] == [number == 3 for number in range(8)]
    assert sum(count.jobs for count in await store.counts()) == 7


async def test_a_key_in_somebody_else_s_transaction_concerns_only_who_asks_for_it(store: PostgresStore) -> None:
    rng = random.Random(2)
    with psycopg.connect(database(18)) as holder:
        holder.execute("INSERT INTO penstock.keys (key, job, fingerprint) VALUES ('k3', gen_random_uuid(), '')")
        calls = [store.submit([new(rng, key=f"k{number}")], TICKET) for number in range(8)]
        async with asyncio.timeout(LONG):
            answers = await asyncio.gather(*calls)
        holder.rollback()
    assert [isinstance(answer, Held) for (answer,) in answers] == [number == 3 for number in range(8)]
    assert sum(count.jobs for count in await store.counts()) == 7
    await store.submit([new(rng, key="k3")], TICKET)


async def test_claims_and_renewals_write_no_index() -> None:
    """Nearly all are HOT: the server counts them, and tells when the connections are closed."""
    url = await asyncio.to_thread(shared_server(18).database, "hot")
    store = await PostgresStore.open(url)
    jobs = await submitted(store, 400)
    claims = await store.claim([Ticket(SHARD, job, "mail", "mail") for job in jobs], "w", LEASE)
    for _ in range(4):
        await store.renew("w", [Lease(claim.job, claim.fence) for claim in claims], LEASE)
    await store.close()
    async with asyncio.timeout(LONG), await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        updates = hot = 0
        while updates < 5 * 400:
            ((updates, hot),) = await (await connection.execute(UPDATES)).fetchall()
    assert hot > updates * 0.8


async def test_text_that_cannot_be_kept_is_refused(store: PostgresStore) -> None:
    with pytest.raises(Invalid):
        await store.submit([new(random.Random(2), tags=("a\0b",))], TICKET)
    assert await store.counts() == []


async def test_a_caller_that_goes_away_does_not_disturb_the_others(store: PostgresStore) -> None:
    rng = random.Random(3)
    calls = [asyncio.create_task(store.submit([new(rng)], TICKET)) for _ in range(6)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[3].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    await store.submit([new(rng)], TICKET)


def count_unnumbered() -> int:
    with psycopg.connect(database(18)) as connection:
        (left,) = connection.execute("SELECT count(*) FROM penstock.journal WHERE number IS NULL").fetchone() or (0,)
    return int(left)


async def test_counts_stay_exact_while_the_journal_is_numbered(store: PostgresStore, other: PostgresStore) -> None:
    rng = random.Random(4)

    async def submit_some(one: PostgresStore) -> None:
        for _ in range(NUMBER_EVERY):
            await one.submit([new(rng)], TICKET)
            assert all(count.jobs > 0 for count in await one.counts())

    await asyncio.gather(submit_some(store), submit_some(other))
    async with asyncio.timeout(LONG):
        # While either store numbers in the background, prune leaves it to that.
        while count_unnumbered():
            await store.prune(Retention(), 10)
    assert [count.jobs for count in await store.counts()] == [2 * NUMBER_EVERY]


async def test_acknowledged_jobs_survive_the_death_of_the_server(server: Postgres) -> None:
    store = await PostgresStore.open(server.url(), deadline=timedelta(seconds=10))
    rng, kept = random.Random(6), list[JobId]()
    enough = asyncio.Event()

    async def keep_submitting() -> None:
        while True:
            (answer,) = await store.submit([new(rng)], TICKET)
            kept.append(answer.job.id)
            if len(kept) > 200:
                enough.set()

    async with asyncio.timeout(LONG):
        callers = [asyncio.create_task(keep_submitting()) for _ in range(16)]
        await enough.wait()
        await asyncio.to_thread(server.kill)
        faults = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(fault) for fault in faults} == {StoreUnavailable}
    with pytest.raises(StoreUnavailable):
        await store.probe()
    await asyncio.to_thread(server.start)
    assert None not in await store.get(kept)
    await store.close()


async def test_a_restarted_server_is_used_again_at_once(server: Postgres) -> None:
    store = await PostgresStore.open(server.url())
    await asyncio.gather(*(store.probe() for _ in range(5)))
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.start)
    await asyncio.gather(*(store.probe() for _ in range(5)))
    await store.close()


async def test_a_server_that_falls_silent_is_left_within_the_deadline(store: PostgresStore) -> None:
    """Also by those who wait in line for their turn, and by who has to make a new connection."""
    port = psycopg.conninfo.conninfo_to_dict(database(18))["port"]
    with FaultProxy(int(str(port))) as proxy:
        far = await PostgresStore.open(f"postgresql://penstock:secret@127.0.0.1:{proxy.port}/jobs", deadline=SHORT)
        await far.submit([new(random.Random(8))], TICKET)
        proxy.fault = Fault.SILENT
        rng = random.Random(9)
        async with asyncio.timeout(LONG):
            calls = [far.submit([new(rng)], TICKET) for _ in range(20)]
            reads = [far.counts() for _ in range(20)]
            answers = await asyncio.gather(*calls, *reads, far.probe(), return_exceptions=True)
            assert all(isinstance(answer, StoreUnavailable) for answer in answers)
            assert f"127.0.0.1:{proxy.port}/jobs" in str(answers[0])
            assert "secret" not in "".join(map(str, answers))
            with pytest.raises(StoreUnavailable):
                await far.get([new(rng).id])
            proxy.fault = Fault.NONE
            await far.probe()
            await far.submit([new(rng)], TICKET)
            await far.close()


async def test_every_caller_of_a_silent_server_is_told(silenced: PostgresStore) -> None:
    rng = random.Random(9)
    answers = await asyncio.gather(*(silenced.submit([new(rng)], TICKET) for _ in range(2)), return_exceptions=True)
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [True, True]


async def test_a_reader_can_leave_a_silent_server_at_once(silenced: PostgresStore) -> None:
    reader = asyncio.create_task(silenced.counts())
    await several_turns()
    reader.cancel()
    await several_turns()
    assert reader.cancelled()


async def several_turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with FaultProxy(1) as proxy:
        proxy.fault = Fault.REFUSING
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
            await PostgresStore.open(f"postgresql://penstock@127.0.0.1:{proxy.port}/jobs", deadline=SHORT)


async def test_the_database_of_another_shard_is_refused(store: PostgresStore) -> None:
    with pytest.raises(StoreUnavailable, match=r"holds shard 0, not 7: correct the shard map"):
        await PostgresStore.open(database(18), shard=ShardId(7))


async def test_a_database_that_cannot_be_written_is_unavailable(store: PostgresStore) -> None:
    with pytest.raises(StoreUnavailable, match="read-only"):
        await PostgresStore.open(f"{database(18)}?options=-c%20default_transaction_read_only%3Don")


async def test_a_url_that_is_none_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidSetting) as told:
        await PostgresStore.open("postgresql://user:secret@host/jobs?nonsense=1")
    assert "secret" not in str(told.value)


async def test_a_closed_store_takes_nothing_more(store: PostgresStore) -> None:
    far = await PostgresStore.open(database(18))
    await far.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await far.submit([new(random.Random(9))], TICKET)


async def test_the_servers_clock_decides_without_another(store: PostgresStore) -> None:
    stage = StoreStage(store, SimulatedClock())
    job = await stage.submit(delay=timedelta(hours=1))
    assert abs(job.created_at - await store.now()) < timedelta(minutes=1)
    assert job.due_at - job.created_at == timedelta(hours=1)
    assert await store.promote(9) == []


async def test_jobs_whose_posting_died_are_anybodys_at_once(store: PostgresStore, other: PostgresStore) -> None:
    rng = random.Random(5)
    await store.submit([new(rng) for _ in range(3)], TICKET)

    async def dies(tickets: Sequence[Ticket]) -> None:
        raise BrokerUnavailable("gone")

    with pytest.raises(BrokerUnavailable):
        await store.dispatch({MAIL: 9}, TICKET, dies)
    assert len(await other.dispatch({MAIL: 9}, TICKET)) == 3


async def test_a_claim_that_is_faster_than_the_mark_waits_for_it(store: PostgresStore, other: PostgresStore) -> None:
    rng = random.Random(6)
    await store.submit([new(rng) for _ in range(3)], TICKET)
    claiming = list[asyncio.Task[list[Claim]]]()

    async def claimed_meanwhile(tickets: Sequence[Ticket]) -> None:
        claiming.append(asyncio.ensure_future(other.claim(tickets, "w1", LEASE)))
        await asyncio.wait(claiming, timeout=0.1)
        assert not claiming[0].done()

    posted = await store.dispatch({MAIL: 9}, TICKET, claimed_meanwhile)
    async with asyncio.timeout(LONG):
        assert {claim.job for claim in await claiming[0]} == {ticket.job for ticket in posted}


async def test_a_cancel_that_meets_a_claim_ends_the_job_or_marks_it(store: PostgresStore, other: PostgresStore) -> None:
    rng = random.Random(7)
    for _ in range(10):
        jobs = [made.job.id for made in await store.submit([new(rng) for _ in range(40)], TICKET)]
        tickets = [Ticket(SHARD, job, "mail", "mail") for job in jobs]
        claims, cancelled = await asyncio.gather(other.claim(tickets, "w1", LEASE), store.cancel(jobs))
        running = {claim.job for claim in claims}
        found = {job.id: job for job in await store.get(jobs) if job is not None}
        for job in jobs:
            expected = State.RUNNING if job in running else State.CANCELLED
            assert (found[job].state, found[job].cancel_requested_at is not None) == (expected, True)
        assert all(answer.event is not None for answer in cancelled)
