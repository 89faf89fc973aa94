"""Whatever is accepted can be listed, claimed, settled and pruned, and keeps no other job from moving.

Every edge of every field, and what Hypothesis makes of them, is sent over HTTP and to `penstock.submit()`: to an engine
on each store, with Valkey as its broker. The same requests each time: what is found here is found by everyone.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.scheduler import Ticker
from penstock.store import Store
from penstock.store.sqlite import SqliteStore
from servers import Valkey
from tests.http import hostile_values
from tests.http.api_calls import WORKER, Json
from tests.http.hostile_system import System
from tests.postgres import database, new_store
from tests.servers_fixtures import real_servers

PLAIN: Json = {"type": "plain"}
SCHEDULE: Json = {"name": "s", "type": "plain", "interval": 60}
TYPE: Json = {"name": "plain", "queue": "plain"}
LINE: Json = {"at": "2030-01-01T00:00:00Z", "stream": "stdout", "text": "x"}
CHUNK = 100

SAME_EACH_TIME = settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with real_servers() as folder, Valkey(folder / "valkey", 0).start() as server:
        yield server


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def system(request: pytest.FixtureRequest, valkey: Valkey) -> Iterator[System]:
    yield from systems(request.param, valkey)


@pytest.fixture(scope="module")
def shard(valkey: Valkey) -> Iterator[System]:
    """On PostgreSQL."""
    yield from systems("postgres", valkey)


def systems(store: str, valkey: Valkey) -> Iterator[System]:
    folder = Path(mkdtemp(prefix="penstock-hostile-"))
    with asyncio.Runner() as runner:
        system = System(runner)
        opening = new_store(18, None) if store == "postgres" else sqlite(folder / "penstock.db")
        system.run(system.open(opening, valkey, folder))
        yield system
        system.run(system.close())
    shutil.rmtree(folder)


@asynccontextmanager
async def sqlite(path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(path)
    yield store
    await store.close()


def chunks(bodies: Iterable[Json]) -> Iterator[list[Json]]:
    known = list(bodies)
    return (known[start : start + CHUNK] for start in range(0, len(known), CHUNK))


# -- jobs


async def send_jobs(system: System, bodies: Sequence[Json]) -> int:
    """How many were accepted; all of them have left again."""
    answers = [await system.ask("POST", "/v1/jobs", system.with_inputs(body)) for body in bodies]
    await system.work_off()
    await system.clear()
    return sum(answer.status_code < 300 for answer in answers)


def test_every_edge_of_a_job_is_refused_or_goes_all_the_way(system: System) -> None:
    accepted = sum(
        system.run(send_jobs(system, bodies)) for bodies in chunks(hostile_values.each_edge(PLAIN, hostile_values.JOB))
    )
    assert accepted > 200


@given(bodies=st.lists(hostile_values.requests(PLAIN, hostile_values.JOB), min_size=5, max_size=30))
@SAME_EACH_TIME
def test_any_job_is_refused_or_goes_all_the_way(system: System, bodies: list[Json]) -> None:
    system.run(send_jobs(system, bodies))


def test_of_a_batch_each_job_is_accepted_or_refused_by_itself(system: System) -> None:
    async def send(bodies: list[Json], key: str) -> None:
        jobs = [PLAIN, *(system.with_inputs(body) for body in bodies if system.can_read(body)), PLAIN]
        answer = await system.ask("POST", "/v1/jobs/batch", {"jobs": jobs}, key)
        problems = [one.get("problem", {"status": 200})["status"] for one in answer.json()["jobs"]]
        assert max(problems) < 500, answer.text
        assert (problems[0], problems[-1]) == (200, 200)
        await system.work_off()
        await system.clear()

    for number, bodies in enumerate(chunks(hostile_values.each_edge(PLAIN, hostile_values.JOB))):
        system.run(send(bodies, f"k{number}"))


# -- schedules, workers, outcomes


def test_every_edge_of_a_schedule_is_refused_or_ticks_or_says_why_not(system: System) -> None:
    async def send(bodies: list[Json]) -> None:
        for number, body in enumerate(bodies):
            named = body | {"name": f"s{number}"} if body["name"] == "s" else body
            if "cron" in body or "timezone" in body:
                named = {"cron": "@hourly"} | {name: named[name] for name in named if name != "interval"}
            await system.ask("POST", "/v1/schedules", named)
        for schedule in (await system.send("GET", "/v1/schedules?limit=500"))["schedules"]:
            path = f"/v1/schedules/{schedule['name']}"
            await system.send("GET", f"{path}/preview")
            await system.ask("POST", f"{path}/trigger")
            await system.send("GET", f"{path}/ticks")
        await Ticker(system.engine.ticks, timedelta(seconds=1), system.engine.clock).step()
        await system.work_off()
        await system.clear()

    for bodies in chunks(hostile_values.each_edge(SCHEDULE, hostile_values.SCHEDULE)):
        system.run(send(bodies))


def test_whatever_a_worker_says_of_itself_can_be_listed(system: System) -> None:
    async def send(worker: Json, declared: Json) -> None:
        await system.ask("POST", "/v1/workers", {"worker": worker, "types": [declared]})

    for worker in hostile_values.each_edge(WORKER, hostile_values.WORKER):
        system.run(send(worker, TYPE))
    for declared in hostile_values.each_edge(TYPE, hostile_values.TYPE):
        system.run(send(WORKER, declared))
    system.run(system.others_move())
    system.run(system.clear())


def test_every_edge_of_what_a_worker_tells_of_a_job_is_refused_or_kept(system: System) -> None:
    told = chain(
        (
            {"error": error}
            for error in hostile_values.each_edge({"code": "raised", "message": "x"}, hostile_values.ERROR)
        ),
        ({"result": edge} for edge in hostile_values.VALUE.edges),
        ({"outputs": [output(name)]} for name in hostile_values.TEXTS),
    )
    lines = hostile_values.each_edge(LINE, hostile_values.LINE)
    progress = hostile_values.each_edge({"fraction": 0.5}, hostile_values.PROGRESS)

    async def send(outcomes: list[Json]) -> None:
        for _ in outcomes:
            await system.send("POST", "/v1/jobs", PLAIN)
        claims = await system.claim_all()
        for claim, outcome in zip(claims, outcomes, strict=True):
            await system.tell(claim, outcome, next(progress, None), next(lines, None))
        await system.reads()
        await system.settle_all(claims)
        await system.clear()

    for outcomes in chunks(told):
        system.run(send(outcomes))


def output(name: str) -> Json:
    return {"name": name, "object": {"key": name, "size": 1, "digest": name, "content_type": name}}


def test_whatever_is_asked_for_is_found_or_not(system: System) -> None:
    async def send(text: str) -> None:
        part = system.quoted(text)
        for path in (
            "/v1/jobs/",
            "/v1/schedules/",
            "/v1/jobs?tag=",
            "/v1/jobs?cursor=",
            "/v1/schedules/s/ticks?cursor=",
        ):
            await system.ask("GET", path + part)

    for text in (*hostile_values.TEXTS, *map(str, hostile_values.INSTANTS)):
        system.run(send(text))
    system.run(system.others_move())


# -- SQL

SQL_TYPES = {
    "params": "jsonb",
    "retry_policy": "jsonb",
    "priority": "integer",
    "tags": "text[]",
    "scheduled_at": "timestamptz",
    "expires_at": "timestamptz",
    "delay_seconds": "double precision",
    "timeout_seconds": "double precision",
}


@pytest.mark.parametrize("whole", [True, False])
def test_every_edge_of_a_job_in_sql_is_refused_or_goes_all_the_way(shard: System, whole: bool) -> None:
    for bodies in chunks(hostile_values.each_edge(PLAIN, hostile_values.SQL_JOB)):
        shard.run(send_by_sql(shard, bodies, whole=whole))


@given(
    bodies=st.lists(hostile_values.requests(PLAIN, hostile_values.SQL_JOB), min_size=5, max_size=30),
    whole=st.booleans(),
)
@SAME_EACH_TIME
def test_any_job_in_sql_is_refused_or_goes_all_the_way(shard: System, bodies: list[Json], whole: bool) -> None:
    shard.run(send_by_sql(shard, bodies, whole=whole))


async def send_by_sql(shard: System, bodies: Sequence[Json], *, whole: bool) -> None:
    async with await psycopg.AsyncConnection.connect(database(18), autocommit=True) as connection:
        for body in bodies:
            await submit_by_sql(connection, body, whole=whole)
    await shard.work_off()
    await shard.clear()


async def submit_by_sql(connection: psycopg.AsyncConnection[Any], body: Json, *, whole: bool) -> None:
    """What is refused, by the driver or by the function, is refused as the caller's fault."""
    if whole:
        statement = "SELECT penstock.submit_request(%(body)s::jsonb)"
        said: Json = {"body": json.dumps(body | {"allow_unknown": True})}
    else:
        said = {name: json.dumps(value) if SQL_TYPES.get(name) == "jsonb" else value for name, value in body.items()}
        named = ", ".join(f"{name} => %({name})s::{SQL_TYPES.get(name, 'text')}" for name in said)
        statement = f"SELECT penstock.submit({named}, allow_unknown => true)"
    try:
        await connection.execute(statement.encode(), said)
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError, UnicodeEncodeError):
        return
