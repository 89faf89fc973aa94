"""Promises of the DynamoDB store while indexes lag, answers are lost, calls are throttled and clocks are wrong."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from msgspec import Struct

from penstock.aws import AwsService
from penstock.model.clock import from_millis, to_millis
from penstock.model.errors import StoreUnavailable, TooLarge
from penstock.model.ids import JobId
from penstock.model.job import BacklogKey, Claim, Loss, Retention, Settlement, Ticket
from penstock.model.journal import EventRetention
from penstock.model.lifecycle import TERMINAL, State
from penstock.store.dynamodb import DynamoStore
from penstock.store.dynamodb.schema import INDEX_KEYS
from penstock.store.dynamodb.server_clock import ServerDate
from penstock.store.dynamodb.table import ALL, DynamoTable, QueryPage, SortRange
from penstock.store.dynamodb.values import Item, decode_item
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import SECOND, TICKET, StoreStage
from tests.dynamodb import new_store, new_table

WRITES = {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "BatchExecuteStatement", "TransactWriteItems"}
LAG = SECOND


class LossyService:
    """Answers of some writes get lost: the call is repeated, as AWS's library does, or fails for its caller."""

    def __init__(self, service: AwsService, rng: random.Random, every: int = 5) -> None:
        self._service = service
        self._rng = rng
        self._every = every
        self._writes = 0
        self.lost = 0

    async def call(self, action: str, **arguments: Any) -> dict[str, Any]:
        answer = await self._service.call(action, **arguments)
        if action not in WRITES:
            return answer
        self._writes += 1
        if self._writes % self._every:
            return answer
        self.lost += 1
        if self._rng.random() < 0.5:
            return await self._service.call(action, **arguments)
        raise StoreUnavailable("the answer was lost")

    async def close(self) -> None:
        await self._service.close()


class LaggingTable(DynamoTable):
    """Queries of an index are answered by what was true up to a second ago."""

    snapshots: list[tuple[int, list[Item]]]
    rng: random.Random
    stale = 0

    async def take_snapshot(self) -> None:
        answer = await self.call("Scan", TableName=self.name, ConsistentRead=True)
        now = self.clock.now()
        kept = [one for one in self.snapshots if one[0] >= now - LAG.total_seconds() * 1000]
        self.snapshots = [*kept, (now, [decode_item(item) for item in answer["Items"]])]

    async def query(
        self,
        partition: str,
        span: SortRange = ALL,
        *,
        index: str | None = None,
        limit: int | None = None,
        start: dict[str, Any] | None = None,
        forward: bool = True,
        count: bool = False,
    ) -> QueryPage:
        if index is None or not self.snapshots:
            return await super().query(
                partition, span, index=index, limit=limit, start=start, forward=forward, count=count
            )
        self.stale += 1
        hash_name, sort_name = INDEX_KEYS[index]
        items = [item for item in self.rng.choice(self.snapshots)[1] if item.get(hash_name) == partition]
        chosen = sorted(
            (item for item in items if _lies_in(item[sort_name], span)),
            key=lambda item: (item[sort_name], item["pk"]),
            reverse=not forward,
        )
        return QueryPage(chosen if limit is None or limit > 1 else chosen[:1], None)


def _lies_in(key: str, span: SortRange) -> bool:
    return (
        (span.prefix is None or key.startswith(span.prefix))
        and (span.after is None or key > span.after)
        and (span.least is None or key >= span.least)
        and (span.most is None or key <= span.most)
    )


@asynccontextmanager
async def faulty_store(clock: SimulatedClock, seed: int) -> AsyncIterator[DynamoStore]:
    """A store whose indexes lag and whose answers get lost."""
    rng = random.Random(seed)
    async with new_store(clock, keep_events=False) as well:
        service = LossyService(well.table.service, rng)
        table = LaggingTable(service, well.table.name, well.table.clock)  # type: ignore[arg-type]
        table.snapshots, table.rng = [], rng
        yield DynamoStore(
            table,
            well.shard,
            "000#",
            keep_events=False,
            retention=Retention(),
            event_retention=EventRetention(),
            admission_age=timedelta(0),
        )


class Outcomes(Struct):
    """What the workers were told of each job's end."""

    accepted: Counter[JobId]
    refused: int = 0


LEASE = timedelta(milliseconds=600)
STEP = timedelta(milliseconds=200)
WORKERS = ("w1", "w2", "w3")
JOBS = 12


async def insist(call: Callable[[], Any]) -> Any:
    """As the engine does: ask again when no answer came."""
    for _ in range(9):
        try:
            return await call()
        except StoreUnavailable:
            continue
    raise AssertionError("no answer in nine attempts")


async def _work(store: DynamoStore, worker: str, rng: random.Random, ended: Outcomes) -> None:
    """Claim a few jobs; abandon a quarter of them, settle the others."""
    tickets = await insist(lambda: store.dispatch({BacklogKey("mail", "mail"): 3}, TICKET))
    try:
        claims = await store.claim(tickets, worker, LEASE)
    except StoreUnavailable:
        return
    for claim in claims:
        if rng.random() < 0.75:
            await _settle(store, claim, ended)


async def _settle(store: DynamoStore, claim: Claim, ended: Outcomes) -> None:
    outcome = Settlement(job=claim.job, fence=claim.fence, state=State.SUCCEEDED, result=b"%d" % claim.fence)
    (settled,) = await insist(lambda: store.settle([outcome]))
    if settled.event is not None or settled.loss is Loss.MINE_ALREADY:
        ended.accepted[claim.job] += 1
    else:
        ended.refused += 1


async def _submit_all(stage: StoreStage) -> None:
    """Each key twice, under another id, as a client does whose request timed out."""
    news = [stage.new(key=f"order-{number}") for number in range(JOBS)]
    await insist(lambda: stage.store.submit(news, TICKET))
    again = [stage.new(key=f"order-{number}") for number in range(JOBS)]
    answers = await insist(lambda: stage.store.submit(again, TICKET))
    assert [answer.id for answer in answers] == [new.id for new in news]


@pytest.mark.parametrize("seed", range(20))
async def test_each_job_ends_once_while_indexes_lag_and_answers_are_lost(seed: int) -> None:
    clock, rng = SimulatedClock(), random.Random(seed)
    async with faulty_store(clock, seed) as store:
        stage, ended = StoreStage(store, clock), Outcomes(Counter())
        await _submit_all(stage)
        table = store.table
        assert isinstance(table, LaggingTable)
        left, table_jobs = True, list[Item]()
        for _ in range(200):
            await table.take_snapshot()
            await asyncio.gather(*(_work(store, worker, rng, ended) for worker in WORKERS))
            await insist(lambda: store.reclaim(9))
            await insist(lambda: store.reclaim(9))
            await insist(lambda: store.expire_tickets(None))
            clock.advance(STEP)
            table_jobs = await _all_jobs(table)
            left = any(State(item["st"]) not in TERMINAL for item in table_jobs)
            if not left:
                break
        assert not left
        assert len(table_jobs) == JOBS
        assert max(ended.accepted.values()) == 1
        succeeded = {item["pk"] for item in table_jobs if item["st"] == State.SUCCEEDED}
        assert set(ended.accepted) <= succeeded
        assert table.stale > 0


async def _all_jobs(table: DynamoTable) -> list[Item]:
    answer = await table.call("Scan", TableName=table.name, ConsistentRead=True)
    return [item for item in map(decode_item, answer["Items"]) if item["sk"] == "job"]


class FlakyService:
    """Fails chosen calls, before or after the service has done them."""

    def __init__(self, service: AwsService) -> None:
        self._service = service
        self.spoil: Callable[[str, dict[str, Any], int], dict[str, Any] | Exception | None] = lambda *_: None
        self.calls = 0

    async def call(self, action: str, **arguments: Any) -> dict[str, Any]:
        self.calls += 1
        spoiled = self.spoil(action, arguments, self.calls)
        if isinstance(spoiled, Exception):
            raise spoiled
        return spoiled or await self._service.call(action, **arguments)

    async def close(self) -> None:
        await self._service.close()


@pytest.fixture
async def store() -> AsyncIterator[DynamoStore]:
    async with new_store(SimulatedClock(), keep_events=False) as store:
        yield store


def _make_flaky(store: DynamoStore) -> FlakyService:
    flaky = FlakyService(store.table.service)
    store.table.service = flaky  # type: ignore[assignment]
    return flaky


async def test_statements_that_were_throttled_are_sent_again_alone(store: DynamoStore) -> None:
    stage = StoreStage(store, SimulatedClock())
    # The first batch also finds the dialect out.
    await stage.submit()
    flaky = _make_flaky(store)
    sent: list[int] = []

    def spoil(action: str, arguments: dict[str, Any], _call: int) -> dict[str, Any] | None:
        if action != "BatchExecuteStatement":
            return None
        sent.append(len(arguments["Statements"]))
        if len(sent) > 1:
            return None
        throttled = {"Error": {"Code": "ThrottlingError", "Message": "slow down"}}
        return {"Responses": [throttled] * len(arguments["Statements"])}

    flaky.spoil = spoil
    answers = await store.submit([stage.new() for _ in range(7)], TICKET)
    assert [answer.created for answer in answers] == [True] * 7
    assert sent == [7, 7]


async def test_a_failure_in_the_midst_of_a_batch_assumes_nothing_and_asking_again_ends_well(store: DynamoStore) -> None:
    flaky, stage = _make_flaky(store), StoreStage(store, SimulatedClock())
    news = [stage.new() for _ in range(60)]
    batches = 0

    def spoil(action: str, _arguments: dict[str, Any], _call: int) -> Exception | None:
        nonlocal batches
        batches += action == "BatchExecuteStatement"
        return StoreUnavailable("500") if action == "BatchExecuteStatement" and batches == 2 else None

    flaky.spoil = spoil
    with pytest.raises(StoreUnavailable):
        await store.submit(news, TICKET)
    answers = await store.submit(news, TICKET)
    assert {answer.id for answer in answers} == {new.id for new in news}
    assert sum(answer.created for answer in answers) in {25, 10}
    assert all(job is not None for job in await store.get([new.id for new in news]))


async def test_an_own_insertion_whose_answer_was_lost_is_told_as_inserted(store: DynamoStore) -> None:
    flaky, stage = _make_flaky(store), StoreStage(store, SimulatedClock())
    service, done = store.table.service, list[str]()

    async def twice(action: str, **arguments: Any) -> dict[str, Any]:
        answer = await FlakyService.call(flaky, action, **arguments)
        if action in WRITES and not done:
            done.append(action)
            answer = await FlakyService.call(flaky, action, **arguments)
        return answer

    service.call = twice  # type: ignore[method-assign]
    (plain,) = await store.submit([stage.new()], TICKET)
    assert (plain.created, done) == (True, ["BatchExecuteStatement"])
    done.clear()
    (claim,) = await store.claim([Ticket(store.shard, plain.id, "mail", "mail")], "w1", LEASE)
    assert (claim.fence, done) == (1, ["BatchExecuteStatement"])
    done.clear()
    (settled,) = await store.settle([Settlement(job=claim.job, fence=claim.fence, state=State.SUCCEEDED)])
    assert settled.event is not None
    done.clear()
    (keyed,) = await store.submit([stage.new(key="k")], TICKET)
    assert (keyed.created, done) == (True, ["TransactWriteItems"])


async def test_what_fits_into_no_item_is_refused_before_it_is_sent(store: DynamoStore) -> None:
    flaky, stage = _make_flaky(store), StoreStage(store, SimulatedClock())
    lease = await stage.run_job()
    before = flaky.calls
    with pytest.raises(TooLarge):
        await stage.settle(lease, result=b"x" * 420_000)
    with pytest.raises(TooLarge):
        await store.submit([stage.new(params=b"x" * 420_000)], TICKET)
    # Only the terms of admission were read.
    assert flaky.calls - before <= 1
    assert (await stage.settle(lease)).event is not None


async def test_a_closed_shard_has_taken_its_last_job_when_it_says_so() -> None:
    """Two processes: one closes the shard, the other still holds a reading by which it is open."""
    table, age = new_table(), timedelta(milliseconds=80)
    async with (
        new_store(SimulatedClock(), table=table, admission_age=age) as one,
        new_store(SimulatedClock(), table=table, admission_age=age) as other,
    ):
        for store in (one, other):
            store.admissions.call_time = timedelta(milliseconds=40)
        stage = StoreStage(other, SimulatedClock())
        taken: list[bool] = []
        began, closed = asyncio.Event(), asyncio.Event()

        async def submit_on() -> None:
            while not closed.is_set():
                (answer,) = await other.submit([stage.new()], TICKET)
                taken.append(answer.created)
                began.set()

        submitting = asyncio.ensure_future(submit_on())
        await began.wait()
        await one.admit(jobs=False)
        closed.set()
        await submitting
        before = len(taken)
        answers = await other.submit([stage.new() for _ in range(3)], TICKET)
        assert [answer.created for answer in answers] == [False] * 3
        assert taken[0]
        assert not any(taken[before - 1 :])


@pytest.mark.parametrize("hours", [-2, 2])
async def test_a_wrong_wall_clock_takes_no_lease_early(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    table = new_table()
    async with new_store(None, table=table) as right:
        stage = StoreStage(right, SimulatedClock(await right.now()))
        lease = await stage.run_job()
        monkeypatch.setattr(
            "penstock.model.clock.SystemClock.now",
            lambda _: from_millis(right.table.clock.now()) + timedelta(hours=hours),
        )
        async with new_store(None, table=table) as wrong:
            assert await wrong.reclaim(9) == []
            assert abs(await wrong.now() - await right.now()) < timedelta(seconds=1.2)
            (renewal,) = await wrong.renew("w1", [lease], timedelta(seconds=15))
            assert renewal.loss is None
            assert await right.reclaim(9) == []
        assert (await stage.settle(lease)).event is not None


@pytest.mark.parametrize("offset", [timedelta(hours=-2), timedelta(hours=2), timedelta(days=9000)])
def test_the_servers_clock_is_known_to_a_fifth_of_a_second_after_twenty_answers(offset: timedelta) -> None:
    clock = SimulatedClock()
    server = ServerDate(clock)
    for _ in range(20):
        sent = clock.monotonic()
        clock.advance(timedelta(milliseconds=4))
        date = format_datetime(clock.now() + offset, usegmt=True)
        clock.advance(timedelta(milliseconds=6))
        server.observe(date, sent, clock.monotonic())
        truth = to_millis(clock.now() + offset)
        assert server.now() <= truth <= server.latest()
        clock.advance(timedelta(milliseconds=367))
    assert to_millis(clock.now() + offset) - server.now() < 200
    assert server.latest() - to_millis(clock.now() + offset) < 200
    assert server.doubt < timedelta(seconds=0.4)


def test_a_server_clock_that_was_stepped_is_followed_and_never_goes_back() -> None:
    clock = SimulatedClock()
    server = ServerDate(clock)
    for offset in (timedelta(hours=1), timedelta(hours=3), timedelta(0)):
        before = server.now() if server.known else 0
        server.observe(format_datetime(clock.now() + offset, usegmt=True), clock.monotonic(), clock.monotonic())
        assert server.now() >= before
        clock.advance(SECOND)
    assert server.latest() >= server.now()
