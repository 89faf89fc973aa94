"""One shard takes connections and never answers: only its own jobs notice."""

import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from cluster.caller import Answer, Caller
from cluster.cluster import Size, running
from cluster.recovery import shard_of
from penstock.model.ids import ShardId
from penstock.model.shards import shard_for_key
from servers import FaultProxy
from servers.proxy import Fault
from tests.servers_fixtures import real_servers
from tests.system.harness import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DARK = ShardId(1)
RING = tuple(map(ShardId, range(3)))
SAMPLE = 200
WORSE = 20
"""How many times slower the slowest of a hundred submits may be: a busy machine, not a deadline of seconds."""


class ApiClient:
    """A client of nginx that asks once."""

    def __init__(self, port: int) -> None:
        self._caller = Caller(port, timeout=60)
        self._n = 0

    def submit(self, key: str | None = None) -> Answer:
        """With a key always the same job, due a little later; without, another one each time."""
        if key is not None:
            body: dict[str, object] = {"type": "quick", "params": {"n": 0}, "delay_seconds": 4}
            return self._caller.call("POST", "/v1/jobs", body, {"Idempotency-Key": key})
        self._n += 1
        return self._caller.call("POST", "/v1/jobs", {"type": "quick", "params": {"n": self._n}})

    def read(self, job: str, wait: int = 0) -> Answer:
        return self._caller.call("GET", f"/v1/jobs/{job}?wait={wait}")

    def list(self) -> Answer:
        return self._caller.call("GET", "/v1/jobs?limit=500")

    def timed_submits(self) -> tuple[float, Counter[int]]:
        """Submits without a key: the 99th of a hundred in seconds, and the answers by status."""
        spans, told = [], Counter[int]()
        for _ in range(SAMPLE):
            began = time.monotonic()
            told[self.submit().status] += 1
            spans.append(time.monotonic() - began)
        return sorted(spans)[math.ceil(SAMPLE * 0.99) - 1], told

    def close(self) -> None:
        self._caller.close()


def test_a_black_holed_shard_is_felt_by_its_own_jobs_only() -> None:
    proxies: list[FaultProxy] = []
    with real_servers() as folder, ExitStack() as undo:

        def through_a_proxy(ports: Sequence[int]) -> list[int]:
            proxies.append(undo.enter_context(FaultProxy(ports[DARK])))
            return [proxies[0].port if number == DARK else port for number, port in enumerate(ports)]

        with running(folder, Size(shards=3, apis=2, schedulers=2, workers=2), through_a_proxy) as cluster:
            api = ApiClient(cluster.port)
            undo.callback(api.close)
            tell(api, proxies[0])


def tell(api: ApiClient, proxy: FaultProxy) -> None:
    waiting = jobs_of_the_dark_shard(api)
    (key, known), *_ = waiting.items()
    before, _ = api.timed_submits()
    proxy.fault = Fault.SILENT
    unnoticed = until_noticed(api, key)
    during, told = api.timed_submits()
    check_the_others_go_on(api, told)
    check_its_own_are_refused(api, key, known)
    print(f"p99 of submits without a key: {before * 1000:.0f} ms before, {during * 1000:.0f} ms during, "  # noqa: T201
          f"ratio {during / before:.1f}; refused until it was noticed: {unnoticed}")  # fmt: skip
    assert during < before * WORSE
    proxy.fault = Fault.NONE
    check_it_heals(api, waiting)


def jobs_of_the_dark_shard(api: ApiClient) -> dict[str, str]:
    """Some jobs that live there, by key."""
    keys = [key for key in (f"key-{n}" for n in range(60)) if shard_for_key(key, RING) == DARK]
    jobs = {key: api.submit(key).body["id"] for key in keys}
    assert {shard_of(job) for job in jobs.values()} == {DARK}
    return jobs


def until_noticed(api: ApiClient, key: str) -> Counter[int]:
    """Ask until the shard is known to be down: then its own are refused at once. The answers to others meanwhile."""
    told: Counter[int] = Counter()

    def refused_at_once() -> bool:
        told[api.submit().status] += 1
        began = time.monotonic()
        return api.submit(key).status == 503 and time.monotonic() - began < 1

    eventually("the shard is known to be down", lambda: all(refused_at_once() for _ in range(6)))
    assert set(told) <= {201, 503}
    return told


def check_the_others_go_on(api: ApiClient, told: Counter[int]) -> None:
    assert set(told) == {201}, told
    other = next(key for key in map("other-{}".format, itertools.count()) if shard_for_key(key, RING) != DARK)
    job = api.submit(other)
    assert job.status == 201
    assert api.read(job.body["id"], wait=30).body["state"] == "succeeded"
    listed = api.list()
    assert (listed.status, listed.body["missing_shards"]) == (200, [DARK])
    assert DARK not in {shard_of(item["id"]) for item in listed.body["jobs"]}


def check_its_own_are_refused(api: ApiClient, key: str, known: str) -> None:
    fresh = next(key for key in map("fresh-{}".format, itertools.count()) if shard_for_key(key, RING) == DARK)
    for refused in (api.submit(key), api.submit(fresh), api.read(known)):
        assert refused.status == 503
        assert refused.retry_after is not None
        assert f"shard {DARK}" in refused.body["detail"]


def check_it_heals(api: ApiClient, waiting: dict[str, str]) -> None:
    eventually("the shard is well again", lambda: api.list().body.get("missing_shards") == [])
    for key, job in waiting.items():
        assert eventually("its key is known", functools.partial(id_of, api, key)) == job
        assert eventually("it has ended", functools.partial(end_of, api, job)) == "succeeded"


def id_of(api: ApiClient, key: str) -> str | None:
    told = api.submit(key)
    return str(told.body["id"]) if told.ok else None


def end_of(api: ApiClient, job: str) -> str | None:
    told = api.read(job, wait=30)
    return str(told.body["state"]) if told.ok and told.body["completed_at"] else None
