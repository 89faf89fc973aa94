"""Jobs submitted inside the user's own transaction: there if it commits, and exactly as the engine would make them."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from msgspec.structs import replace
from psycopg.rows import dict_row, scalar_row

from penstock import Penstock, Retry
from penstock.engine.job_spec import new_job
from penstock.model.clock import EPOCH, SystemClock, from_millis
from penstock.model.errors import Invalid, InvalidParams
from penstock.model.ids import JobId, ShardId, created_at, parse_job_id, shard_of
from penstock.model.job import BacklogKey, Job, JobFilter, Lease
from penstock.model.lifecycle import State
from penstock.model.notices import Notice
from penstock.model.retry import RetryKind
from penstock.model.wire.jobs import SubmitRequest
from penstock.model.workers import JobType
from penstock.store.postgres import PostgresStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import TICKET, StoreStage
from tests.postgres import LockWaits, database, new_store, server

LATER = datetime(2100, 1, 1, 12, tzinfo=UTC)
PATIENCE = 60
MAIL = JobType(name="mail", queue="post", priority=7, retry=Retry.fixed(2.5, max_attempts=9), timeout_seconds=None)

app = Penstock()


@app.job(queue="pictures", retry=Retry.none(), timeout=60)
def thumbnail(url: str, width: int = 256) -> str:
    return f"{url}@{width}"


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    async with new_store(18, None) as store:
        yield store


@pytest.fixture
def stage(store: PostgresStore) -> StoreStage:
    return StoreStage(store, SimulatedClock())


@pytest.fixture
def connection(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database(18)) as connection:
        yield connection


async def all_jobs(store: PostgresStore) -> list[Job]:
    return list((await store.page(JobFilter(), None, 99)).jobs)


def by_sql(connection: psycopg.Connection[Any], **fields: object) -> JobId:
    """`penstock.submit` with these parameters by name."""
    said = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in fields.items()}
    named = ", ".join(f"{name} => %({name})s" for name in said)
    row = connection.execute(f"SELECT penstock.submit({named})".encode(), said).fetchone()
    assert row is not None
    return JobId(str(row[0]))


def servers_clock(connection: psycopg.Connection[Any]) -> datetime:
    """Exactly; a store tells it to within half a round trip."""
    ((now,),) = connection.execute("SELECT penstock.shard_now(NULL)").fetchall()
    return from_millis(now)


class TestTransactions:
    async def test_a_job_is_there_once_the_transaction_commits_and_runs(
        self, store: PostgresStore, stage: StoreStage, connection: psycopg.Connection[Any]
    ) -> None:
        job = app.submit_in(connection, thumbnail, "cat.png", width=64)
        assert await store.get([job.id]) == [None]
        connection.commit()
        (ticket,) = await store.dispatch({BacklogKey("pictures", "thumbnail"): 9}, TICKET)
        (claim,) = await store.claim([ticket], "w1", timedelta(seconds=15))
        assert (claim.job, claim.type, json.loads(bytes(claim.params))) == (
            job.id,
            "thumbnail",
            {"url": "cat.png", "width": 64},
        )
        assert claim.timeout_seconds == 60
        await stage.settle(Lease(claim.job, claim.fence), result=b'"done"')
        assert (await stage.job(job.id)).state is State.SUCCEEDED
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_a_transaction_rolled_back_leaves_nothing(
        self, store: PostgresStore, stage: StoreStage, connection: psycopg.Connection[Any]
    ) -> None:
        app.submit_in(connection, thumbnail.using(key="k", tags=["red"]), "cat.png")
        connection.rollback()
        assert await all_jobs(store) == []
        assert await stage.read_counts() == set()
        again = app.submit_in(connection, thumbnail.using(key="k"), "dog.png")
        connection.commit()
        assert [job.id for job in await all_jobs(store)] == [again.id]

    async def test_the_job_goes_with_the_users_own_rows(
        self, store: PostgresStore, connection: psycopg.Connection[Any]
    ) -> None:
        connection.execute("CREATE TEMPORARY TABLE orders (n integer PRIMARY KEY)")
        connection.commit()
        app.submit_in(connection, thumbnail, "cat.png")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO orders VALUES (1), (1)")
        connection.commit()
        assert await all_jobs(store) == []

    async def test_it_is_the_job_that_the_engine_would_make(
        self, store: PostgresStore, stage: StoreStage, connection: psycopg.Connection[Any]
    ) -> None:
        await store.put_notices([Notice("type", "mail", msgspec.json.encode(MAIL), EPOCH)])
        for request in requests():
            expected = new_job(stage.unknown(), request, MAIL, SystemClock().now())
            (submission,) = await store.submit([replace(expected, key=None)], TICKET)
            job = by_request(connection, request)
            connection.commit()
            assert alike(await stage.job(job)) == alike(submission.job), request

    async def test_a_tagged_job_is_listed_by_its_tags(
        self, store: PostgresStore, connection: psycopg.Connection[Any]
    ) -> None:
        job = by_sql(connection, type="mail", tags=["red", "blue", "red"], allow_unknown=True)
        connection.commit()
        for tag in ("red", "blue"):
            assert [one.id for one in (await store.page(JobFilter(tag=tag), None, 9)).jobs] == [job]

    async def test_an_id_names_its_shard_and_its_time(
        self, store: PostgresStore, connection: psycopg.Connection[Any]
    ) -> None:
        before = servers_clock(connection)
        connection.execute("UPDATE penstock.shard SET number = 2748")
        ids = [by_sql(connection, type="mail", allow_unknown=True) for _ in range(20)]
        after = servers_clock(connection)
        connection.rollback()
        assert len(set(ids)) == 20
        for job in ids:
            assert (parse_job_id(job), shard_of(job)) == (job, ShardId(2748))
            assert before <= created_at(job) <= after


class TestKeys:
    async def test_a_key_gives_its_job_back(self, store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
        using = thumbnail.using(key="order-7")
        first = app.submit_in(connection, using, "cat.png")
        assert app.submit_in(connection, using, "cat.png").id == first.id
        connection.commit()
        assert app.submit_in(connection, using, "cat.png").id == first.id
        connection.commit()
        assert [job.id for job in await all_jobs(store)] == [first.id]

    async def test_a_key_used_for_something_else_is_refused(
        self, store: PostgresStore, connection: psycopg.Connection[Any]
    ) -> None:
        app.submit_in(connection, thumbnail.using(key="order-7"), "cat.png")
        connection.commit()
        with pytest.raises(psycopg.errors.UniqueViolation, match="asked for something else"):
            app.submit_in(connection, thumbnail.using(key="order-7"), "dog.png")

    async def test_a_key_of_the_function_is_a_key_of_the_store(
        self, store: PostgresStore, stage: StoreStage, connection: psycopg.Connection[Any]
    ) -> None:
        job = by_sql(connection, type="mail", idempotency_key="k", allow_unknown=True)
        connection.commit()
        (met,) = await store.submit([stage.new(key="k", fingerprint=b"another")], TICKET)
        assert (met.job.id, met.event, met.conflict) == (job, None, True)
        taken = await stage.submit(key="mine", fingerprint=b"mine")
        with pytest.raises(psycopg.errors.UniqueViolation, match=taken.id):
            by_sql(connection, type="mail", idempotency_key="mine", allow_unknown=True)

    @pytest.mark.parametrize("commits", [True, False])
    async def test_of_two_at_once_with_one_key_the_second_waits_for_the_first(
        self, store: PostgresStore, connection: psycopg.Connection[Any], commits: bool
    ) -> None:
        first = app.submit_in(connection, thumbnail.using(key="k"), "cat.png")
        answers: list[JobId] = []
        second = threading.Thread(target=submit_alone, args=(answers,))
        waits = LockWaits(database(18))
        second.start()
        await waits.next()
        if commits:
            connection.commit()
        else:
            connection.rollback()
        await asyncio.to_thread(second.join, PATIENCE)
        assert (answers == [first.id]) is commits
        assert [job.id for job in await all_jobs(store)] == answers


class TestRefusals:
    @pytest.mark.parametrize(
        ("said", "wrong"),
        [
            ({"type": "no worker"}, "type"),
            ({"type": "ma\nil"}, "type"),
            ({"type": None}, "type"),
            ({"queue": ""}, "queue"),
            ({"params": "[1]"}, "params"),
            ({"params": '{"n": ' + "[" * 64 + "1" + "]" * 64 + "}"}, "params: nested"),
            ({"params": '{"n": [9223372036854775808]}'}, "params: a number"),
            ({"params": '{"n": -1e400}'}, "params: a number"),
            ({"params": '{"n": "' + "x" * 2**24 + '"}'}, "params: .* bytes"),
            ({"priority": 10}, "priority"),
            ({"delay_seconds": 1, "scheduled_at": LATER}, "either"),
            ({"delay_seconds": -1}, "delay_seconds"),
            ({"delay_seconds": float("nan")}, "delay_seconds"),
            ({"scheduled_at": LATER, "expires_at": LATER}, "expires_at"),
            ({"expires_at": EPOCH}, "expires_at"),
            ({"expires_at": "infinity"}, "expires_at"),
            ({"expires_at": "20000-01-01Z"}, "expires_at"),
            ({"scheduled_at": "20000-01-01Z"}, "scheduled_at"),
            ({"scheduled_at": "3000-01-01Z"}, "scheduled_at"),
            ({"scheduled_at": "1969-12-31Z"}, "scheduled_at"),
            ({"scheduled_at": "-infinity"}, "scheduled_at"),
            ({"timeout_seconds": 0}, "timeout_seconds"),
            ({"timeout_seconds": float("nan")}, "timeout_seconds"),
            ({"tags": [""]}, "tags"),
            ({"tags": [None]}, "tags"),
            ({"tags": ["two\nlines"]}, "tags"),
            ({"tags": ["\x9b"]}, "tags"),
            ({"tags": ["x" * 129]}, "tags"),
            ({"tags": ["x"] * 33}, "tags"),
            ({"idempotency_key": ""}, "idempotency_key"),
            ({"idempotency_key": "two words"}, "idempotency_key"),
            ({"retry_policy": '"often"'}, "retry_policy"),
            ({"retry_policy": "[]"}, "retry_policy"),
            ({"retry_policy": {"tries": 3}}, "retry_policy"),
            ({"retry_policy": {"max_attempts": 0}}, "retry_policy"),
            ({"retry_policy": {"max_attempts": 1.5}}, "retry_policy"),
            ({"retry_policy": {"delay_seconds": "1"}}, "retry_policy"),
            ({"retry_policy": {"never": [1]}}, "retry_policy"),
            ({"retry_policy": {"jitter": None}}, "retry_policy"),
        ],
    )
    async def test_what_the_engine_would_refuse_is_refused(
        self, store: PostgresStore, connection: psycopg.Connection[Any], said: dict[str, object], wrong: str
    ) -> None:
        with pytest.raises(psycopg.Error, match=wrong):
            by_sql(connection, **{"type": "mail", "allow_unknown": True, **said})
        connection.commit()
        assert await all_jobs(store) == []

    async def test_a_type_that_no_worker_has_declared_is_refused_unless_allowed(
        self, store: PostgresStore, connection: psycopg.Connection[Any]
    ) -> None:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="no worker has declared 'mail'"):
            by_sql(connection, type="mail")
        connection.rollback()
        job = by_sql(connection, type="mail", allow_unknown=True)
        connection.commit()
        (kept,) = await store.get([job])
        assert kept is not None
        assert (kept.queue, kept.priority, kept.retry, kept.timeout) == ("mail", 5, Retry(), timedelta(hours=1))

    async def test_a_type_whose_declaration_holds_a_nul_is_submitted_all_the_same(
        self, store: PostgresStore, connection: psycopg.Connection[Any]
    ) -> None:
        told = msgspec.json.encode(replace(MAIL, description="a \0 and a \\u0000"))
        await store.put_notices([Notice("type", "mail", told, EPOCH)])
        job = by_sql(connection, type="mail")
        connection.commit()
        assert [(one.id, one.queue) for one in await all_jobs(store)] == [(job, "post")]

    async def test_a_field_that_means_nothing_here_is_refused(
        self, store: PostgresStore, connection: psycopg.Connection[Any]
    ) -> None:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="interval, nonsense"):
            connection.execute("""SELECT penstock.submit_request('{"type": "mail", "nonsense": 1, "interval": 5}')""")

    async def test_what_only_a_server_can_do_is_refused_before_anything_is_sent(self) -> None:
        for using in (thumbnail.using(interval=60), thumbnail.using(inputs={"cat": b"meow"})):
            with pytest.raises(Invalid, match="inside a transaction"):
                app.submit_in(None, using, "cat.png")
        with pytest.raises(InvalidParams):
            app.submit_in(None, thumbnail, 7)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="NoneType runs no SQL"):
            app.submit_in(None, thumbnail, "cat.png")

    async def test_a_role_needs_no_rights_on_the_tables(self, store: PostgresStore) -> None:
        server(18).run("DROP ROLE IF EXISTS shop; CREATE ROLE shop LOGIN", "jobs")
        server(18).run("GRANT USAGE ON SCHEMA penstock TO shop", "jobs")
        with psycopg.connect(database(18).replace("penstock@", "shop@")) as connection:
            job = app.submit_in(connection, thumbnail.using(tags=["red"], key="k"), "cat.png")
            connection.commit()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM penstock.jobs")
        assert [one.id for one in await all_jobs(store)] == [job.id]
        server(18).run("REVOKE USAGE ON SCHEMA penstock FROM shop; DROP ROLE shop", "jobs")


class TestConnections:
    async def test_a_cursor_will_do(self, store: PostgresStore, connection: psycopg.Connection[Any]) -> None:
        with connection.cursor() as cursor:
            job = app.submit_in(cursor, thumbnail, "cat.png")
        connection.commit()
        assert [one.id for one in await all_jobs(store)] == [job.id]

    @pytest.mark.parametrize("rows", [dict_row, scalar_row])
    async def test_however_the_connection_makes_rows(self, store: PostgresStore, rows: Any) -> None:
        with psycopg.connect(database(18), row_factory=rows) as connection:
            job = app.submit_in(connection, thumbnail, "cat.png")
        assert [one.id for one in await all_jobs(store)] == [job.id]

    async def test_an_asynchronous_connection_is_awaited(self, store: PostgresStore) -> None:
        async with await psycopg.AsyncConnection.connect(database(18)) as connection:
            job = await app.submit_in_async(connection, thumbnail, "cat.png")
            async with connection.cursor() as cursor:
                other = await app.submit_in_async(cursor, thumbnail.using(priority=9), "dog.png")
            assert await store.get([job.id]) == [None]
        assert [one.id for one in await all_jobs(store)] == [other.id, job.id]

    async def test_an_asynchronous_connection_is_told_apart(self, store: PostgresStore) -> None:
        async with await psycopg.AsyncConnection.connect(database(18)) as connection:
            with pytest.raises(Invalid, match="submit_in_async"):
                app.submit_in(connection, thumbnail, "cat.png")
        assert await all_jobs(store) == []


def requests() -> list[SubmitRequest]:
    return [
        SubmitRequest(type="mail"),
        SubmitRequest(type="mail", params=msgspec.Raw(b'{"to": ["x"], "n": 1.50, "deep": {"none": null}}')),
        SubmitRequest(type="mail", queue="slow", priority=0, timeout_seconds=1.25, tags=("blue", "red")),
        SubmitRequest(type="mail", timeout_seconds=None, delay_seconds=3600),
        SubmitRequest(type="mail", scheduled_at=LATER, expires_at=LATER + timedelta(seconds=1)),
        SubmitRequest(type="mail", retry_policy=Retry.linear(3, max_attempts=4, never=("ValueError",), jitter=False)),
        SubmitRequest(type="mail", idempotency_key="k"),
        *(SubmitRequest(type="mail", retry_policy=kind) for kind in RetryKind),
    ]


def by_request(connection: psycopg.Connection[Any], request: SubmitRequest) -> JobId:
    said = {
        name: value
        for name, value in msgspec.structs.asdict(request).items()
        if value not in (None, (), {}, msgspec.UNSET)
    }
    if request.timeout_seconds is None:
        said["timeout_seconds"] = None
    row = connection.execute("SELECT penstock.submit_request(%s)", (msgspec.json.encode(said).decode(),)).fetchone()
    assert row is not None
    return JobId(str(row[0]))


def alike(job: Job) -> Job:
    """Without what differs from one submit to the next, and with its params in one order."""
    params = msgspec.json.encode(msgspec.json.decode(job.params or b""), order="deterministic")
    same = replace(job, id=JobId("-"), created_at=EPOCH, params=params)
    return same if job.due_at == LATER else replace(same, due_at=EPOCH + round_minutes(job.due_at - job.created_at))


def round_minutes(span: timedelta) -> timedelta:
    return timedelta(minutes=round(span / timedelta(minutes=1)))


def submit_alone(answers: list[JobId]) -> None:
    with psycopg.connect(database(18)) as connection:
        answers.append(app.submit_in(connection, thumbnail.using(key="k"), "cat.png").id)
