"""Metrics as Prometheus reads them."""

import random
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Self

import httpx2
import pytest

from penstock.api import create_app
from penstock.api.app import METRICS_OPERATIONS
from penstock.api.exposition import Family, Traffic
from penstock.api.metrics import FAMILIES
from penstock.broker import Broker
from penstock.broker.memory import MemoryBroker
from penstock.broker.redis import RedisBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model.clock import SystemClock
from penstock.objects import ObjectStore
from penstock.objects.folder import FolderObjects
from penstock.objects.s3 import Access, S3Objects
from penstock.orchestrator import ShardedStore
from tests.http.api_calls import JOIN, WORKER, Client, claim, settle, submit
from tests.http.test_schedules import create
from tests.services.faulty_shards import FaultyShards

LINE = re.compile(r'(# (HELP|TYPE) .+|[a-z_]+(\{([a-z]+="(\\.|[^"\\\n])*",?)+\})? [0-9.e+-]+)')


ENDS = ("succeeded", "failed", "cancelled", "expired")


async def scrape(client: Client) -> dict[str, float]:
    """Every sample by its name and labels, as they are written."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    lines = answer.text.splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    assert len(samples) == len({name for name, _ in samples})
    return {name: float(value) for name, value in samples}


async def test_jobs_queues_workers_and_requests_are_measured(client: Client) -> None:
    item = await submit(client)
    await client.get(f"/v1/jobs/{item['id']}")
    await client.get("/nowhere")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert 'penstock_jobs{shard="0",queue="other",type="other",state="queued"} 1' in lines
    assert 'penstock_workers{state="ready"} 1' in lines
    assert 'penstock_http_requests_total{route="/v1/jobs",method="POST",status="201"} 1' in lines
    assert 'penstock_http_requests_total{route="/v1/jobs/{job}",method="GET",status="200"} 1' in lines
    assert 'penstock_http_requests_total{route="unknown",method="GET",status="404"} 1' in lines
    assert 'penstock_http_seconds_bucket{route="/v1/jobs",method="POST",le="+Inf"} 1' in lines
    assert 'penstock_http_seconds_count{route="/v1/jobs",method="POST"} 1' in lines
    assert any(line.startswith('penstock_queue_oldest_seconds{shard="0",queue="other"}') for line in lines)


def test_invented_methods_and_paths_make_no_new_series() -> None:
    traffic = Traffic()
    for number in range(100):
        traffic.note(None, f"X{number}", 404, 0.001)
    assert [labels for _, labels, _ in traffic.requests()] == [{"route": "unknown", "method": "other", "status": "404"}]


def test_buckets_count_everything_up_to_their_bound() -> None:
    traffic = Traffic()
    for seconds in (0.001, 0.002, 0.3, 100):
        traffic.note("/", "GET", 200, seconds)
    buckets = {labels["le"]: value for suffix, labels, value in traffic.durations() if suffix == "_bucket"}
    assert (buckets["0.001"], buckets["0.005"], buckets["0.5"], buckets["60.0"], buckets["+Inf"]) == (1, 2, 3, 3, 4)


def test_a_label_cannot_end_its_quotes() -> None:
    text = Family("x", "gauge", "About.").text([("", {"queue": 'a"b\\c\nd'}, 1)])
    assert text.splitlines()[-1] == 'x{queue="a\\"b\\\\c\\nd"} 1'


async def test_every_move_is_counted_by_the_process_that_made_it(client: Client) -> None:
    retry = {"kind": "fixed", "max_attempts": 2, "delay_seconds": 0}
    for _ in range(3):
        await submit(client, retry_policy=retry)
    won, lost, again = await claim(client)
    await settle(client, won)
    error = {"code": "raised", "message": "boom"}
    await settle(client, lost, error={**error, "retryable": False})
    await settle(client, again, error=error)
    await settle(client, {**won, "fence": 0})
    samples = await scrape(client)
    assert samples["penstock_jobs_submitted_total"] == 3
    ended = {outcome: samples[f'penstock_jobs_ended_total{{type="other",outcome="{outcome}"}}'] for outcome in ENDS}
    assert ended == {"succeeded": 1, "failed": 1, "cancelled": 0, "expired": 0}
    assert samples['penstock_retries_total{type="other"}'] == 1
    assert samples['penstock_job_wait_seconds_count{type="other"}'] == 3
    assert samples['penstock_job_run_seconds_count{type="other"}'] == 3
    assert samples['penstock_settles_refused_total{reason="lost"}'] == 1


async def test_declared_types_are_counted_from_nothing_on(client: Client) -> None:
    samples = await scrape(client)
    assert samples['penstock_jobs_ended_total{type="add",outcome="failed"}'] == 0
    assert samples['penstock_retries_total{type="add"}'] == 0
    assert samples['penstock_leases_lost_total{type="add"}'] == 0


async def test_how_busy_workers_are_is_told(client: Client) -> None:
    busy = {**WORKER, "running": 3}
    (await client.post("/v1/workers/w1/renew", json={"worker": busy, "leases": []})).raise_for_status()
    samples = await scrape(client)
    assert (samples["penstock_worker_capacity"], samples["penstock_worker_running"]) == (4, 3)
    assert samples['penstock_workers{state="lost"}'] == 0


async def test_every_metric_has_a_family_and_every_family_its_own_name(client: Client) -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    told = {re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", name) for name in await scrape(client)}
    assert told - {"penstock_job_wait_seconds"} <= set(names)


class ManyShards:
    """An API over two shards that fall ill on demand, on a clock set by hand."""

    def __init__(self, case: FaultyShards, store: ShardedStore, engine: Engine, client: Client) -> None:
        self.case = case
        self.store = store
        self.engine = engine
        self.client = client

    @classmethod
    async def over(
        cls, case: FaultyShards, settings: Settings, folder: Path, broker: Broker, objects: ObjectStore | None = None
    ) -> Self:
        store = await case.orchestrator(range(2))
        files = objects or FolderObjects(folder / "objects", case.clock)
        engine = Engine(store, broker, files, settings, case.clock, random.Random(7))
        transport = httpx2.ASGITransport(app=create_app(engine))
        client = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
        (await client.post("/v1/workers", json=JOIN)).raise_for_status()
        return cls(case, store, engine, client)

    async def close(self) -> None:
        await self.client.aclose()
        await self.engine.close()


@pytest.fixture
async def many(tmp_path: Path, settings: Settings) -> AsyncIterator[ManyShards]:
    async with FaultyShards(tmp_path) as case:
        made = await ManyShards.over(case, settings, tmp_path, MemoryBroker())
        yield made
        await made.close()


def jobs_of(samples: dict[str, float], shard: int) -> float:
    return sum(value for name, value in samples.items() if name.startswith(f'penstock_jobs{{shard="{shard}"'))


async def test_a_dead_shard_is_seen_and_the_counts_of_others_stay_apart(many: ManyShards) -> None:
    for _ in range(20):
        await submit(many.client)
    before = await scrape(many.client)
    assert jobs_of(before, 0) + jobs_of(before, 1) == 20
    assert (before['penstock_shard_up{shard="0"}'], before['penstock_shard_up{shard="1"}']) == (1, 1)
    await many.case.falls(many.store, 1)
    after = await scrape(many.client)
    assert (after['penstock_shard_up{shard="0"}'], after['penstock_shard_up{shard="1"}']) == (1, 0)
    assert not [name for name in after if name.startswith('penstock_jobs{shard="1"')]
    assert jobs_of(after, 0) == jobs_of(before, 0)
    assert after['penstock_shard_failures_total{shard="1"}'] >= 2


async def test_metrics_are_told_while_no_shard_answers(many: ManyShards) -> None:
    for number in range(2):
        await many.case.falls(many.store, number)
    samples = await scrape(many.client)
    assert [samples[f'penstock_shard_up{{shard="{number}"}}'] for number in range(2)] == [0, 0]
    assert samples["penstock_broker_up"] == 1
    assert not [name for name in samples if name.startswith("penstock_jobs{")]


async def test_a_shard_that_its_operator_set_down_pages_nobody(many: ManyShards) -> None:
    (await many.client.patch("/v1/shards/1", json={"state": "down"})).raise_for_status()
    samples = await scrape(many.client)
    assert (samples['penstock_shard_up{shard="0"}'], 'penstock_shard_up{shard="1"}' in samples) == (1, False)


async def test_late_schedules_are_named(many: ManyShards) -> None:
    await create(many.client, "nightly", interval=60)
    on_time = await scrape(many.client)
    assert (on_time["penstock_schedules_late"], *[name for name in on_time if "schedule_late" in name]) == (0,)
    many.case.clock.advance(timedelta(seconds=200))
    late = await scrape(many.client)
    assert late["penstock_schedules_late"] == 1
    assert 140 <= late['penstock_schedule_late_seconds{schedule="nightly"}'] <= 200


async def test_a_broker_and_an_object_store_that_are_away_are_seen(tmp_path: Path, settings: Settings) -> None:
    async with FaultyShards(tmp_path) as case:
        broker = await RedisBroker.open("redis://127.0.0.1:1", SystemClock())
        objects = await S3Objects.open("s3://bucket", case.clock, Access(endpoint="http://127.0.0.1:1"))
        many = await ManyShards.over(case, settings, tmp_path, broker, objects)
        samples = await scrape(many.client)
        await many.close()
    assert (samples["penstock_broker_up"], samples["penstock_objects_up"]) == (0, 0)
    assert samples['penstock_shard_up{shard="0"}'] == 1


async def test_a_process_that_is_no_api_tells_only_its_own(engine: Engine, client: Client) -> None:
    await submit(client)
    transport = httpx2.ASGITransport(app=create_app(engine, METRICS_OPERATIONS))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as role:
        samples = await scrape(role)
        assert (await role.get("/healthz")).status_code == 200
        assert (await role.get("/v1/jobs")).status_code == 404
    assert samples["penstock_jobs_submitted_total"] == 1
    assert not [name for name in samples if name.startswith(("penstock_jobs{", "penstock_workers", "penstock_queue"))]
