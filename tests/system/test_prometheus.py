"""A real Prometheus scrapes two APIs and two schedulers over two shards, while parts of them are killed."""

import re
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

from cluster.caller import Caller
from cluster.roles import Api, Role
from penstock.model.ids import ShardId
from penstock.model.shards import shard_for_key
from penstock.store import schedule_key
from servers import Postgres, Prometheus, Valkey, promtool
from servers.launch import free_port
from tests.servers_fixtures import real_servers
from tests.system.harness import Server, ending, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules.yml"
RING = (ShardId(0), ShardId(1))
JOBS = 10
SCRAPES = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - {{job_name: penstock-api, static_configs: [{{targets: {apis}}}]}}
  - {{job_name: penstock-scheduler, static_configs: [{{targets: {schedulers}}}]}}
"""
NAMES = ["good", "bad"]
WORKER = {
    "id": "w1",
    "host": "here",
    "pid": 1,
    "version": "test",
    "types": NAMES,
    "capacity": 99,
    "started_at": "2026-01-01T00:00:00Z",
}
TYPES = [{"name": name, "queue": name} for name in NAMES]


class Site:
    """Two of everything that there should be two of, and a worker that is this test."""

    def __init__(self, folder: Path, undo: ExitStack) -> None:
        self.folder = folder
        self.shards = [Postgres(folder / f"shard{number}", settings={"fsync": "off"}) for number in RING]
        for shard in self.shards:
            undo.enter_context(shard)
            shard.database("penstock")
        self.valkey = undo.enter_context(Valkey(folder / "valkey"))
        self._settle(self.valkey.url)
        self.apis = [Api(*self._place(f"api{number}")) for number in range(2)]
        self.schedulers = [self._scheduler(number) for number in range(2)]
        for role in (*self.apis, *self.schedulers):
            undo.callback(role.kill)
            role.launch()
        for role in (*self.apis, *self.schedulers):
            role.await_ready()
        self.prometheus = undo.enter_context(Prometheus(folder / "prometheus", self._scrapes()))

    def _settle(self, broker: str) -> None:
        shards = ", ".join(
            f'"{number}={shard.url("penstock")}"' for number, shard in zip(RING, self.shards, strict=True)
        )
        (self.folder / "penstock.toml").write_text(
            f'[store]\nshards = [{shards}]\n[broker]\nurl = "{broker}"\n[server]\ndata = "{self.folder}/data"\n'
        )

    def _place(self, name: str) -> tuple[Path, str, Path, dict[str, str]]:
        return self.folder / name, name, self.folder / "penstock.toml", {}

    def _scheduler(self, number: int) -> Role:
        port = free_port()
        return Role(*self._place(f"scheduler{number}"), "scheduler", "--metrics-port", str(port), port=port)

    def _scrapes(self) -> Path:
        """The rules as they are shipped, but for how long something must be so."""
        rules = self.folder / "rules.yml"
        rules.write_text(re.sub(r"for: \d+m", "for: 3s", RULES.read_text()))
        config = self.folder / "prometheus.yml"
        targets = [[f"127.0.0.1:{role.port}" for role in roles] for roles in (self.apis, self.schedulers)]
        config.write_text(SCRAPES.format(rules=rules, apis=targets[0], schedulers=targets[1]))
        return config

    def call(self, path: str, body: object, api: int = 0) -> Any:
        # A connection for each: one that is kept is closed by the server while Prometheus is waited for.
        with closing(Caller(self.apis[api].port)) as caller:
            answer = caller.call("POST", path, body)
        assert answer.ok, answer
        return answer.body

    def run_jobs(self, type_name: str, error: object = None) -> None:
        """Submit, claim and settle, now through one API and now through the other."""
        apis = cycle(range(2))
        for _ in range(JOBS):
            self.call("/v1/jobs", {"type": type_name}, next(apis))
        left = JOBS
        while left:
            asked = {"types": [type_name], "limit": 3, "wait_seconds": 5}
            claims = self.call("/v1/workers/w1/claim", asked, next(apis))["claims"]
            outcomes = [{"job": one["job"], "fence": one["fence"], "error": error} for one in claims]
            assert self.call("/v1/workers/w1/settle", {"outcomes": outcomes}, next(apis)) == {"refused": []}
            left -= len(claims)

    def stored(self, statement: str) -> int:
        """The sum of what the shards answer."""
        return sum(int(shard.run(statement, "penstock")) for shard in self.shards)

    def scraped(self, expression: str) -> float | None:
        found = self.prometheus.query(expression)
        return next(iter(found.values()), None)

    def firing(self) -> set[str]:
        return {alert["alertname"] for alert in self.prometheus.alerts()}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with real_servers() as folder, ExitStack() as undo:
        yield Site(folder, undo)


def test_the_sums_agree_with_the_store_and_what_is_killed_is_alerted_and_nothing_else(site: Site) -> None:
    site.call("/v1/workers", {"worker": WORKER, "types": TYPES})
    await_value(site, 'count(penstock_jobs_ended_total{type="bad", outcome="failed"})', 4)
    check_metrics(site)
    site.run_jobs("good")
    check_sums(site)
    assert site.firing() == set()

    site.run_jobs("bad", {"code": "raised", "message": "boom", "retryable": False})
    await_alerts(site, {"PenstockJobsFailing"})
    assert {alert["type"] for alert in site.prometheus.alerts()} == {"bad"}
    check_sums(site)

    late = put_schedule(site)
    site.shards[1].kill()
    await_alerts(site, {"PenstockJobsFailing", "PenstockShardDown"})
    assert {alert["shard"] for alert in site.prometheus.alerts() if "shard" in alert} == {"1"}
    assert site.scraped('count(penstock_jobs{shard="1"}) or vector(0)') == 0

    site.schedulers[1].kill()
    await_alerts(site, {"PenstockJobsFailing", "PenstockShardDown", "PenstockSchedulerDown"})

    # Without any scheduler nothing decides a tick.
    site.schedulers[0].pause()
    long_ago = "UPDATE penstock.schedules SET next_tick_at = next_tick_at - 3600000"
    site.shards[0].run(long_ago, "penstock")
    await_alerts(site, {"PenstockJobsFailing", "PenstockShardDown", "PenstockSchedulerDown", "PenstockScheduleLate"})
    assert {alert["schedule"] for alert in site.prometheus.alerts() if "schedule" in alert} == {late}
    site.schedulers[0].resume()
    await_alerts(site, {"PenstockJobsFailing", "PenstockShardDown", "PenstockSchedulerDown"})
    ever = site.prometheus.query('count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))')
    # Before its first scrape, Prometheus has seen no metrics.
    fired = {dict(labels)["alertname"] for labels in ever} - {"PenstockMetricsAbsent"}
    assert fired == {"PenstockJobsFailing", "PenstockShardDown", "PenstockSchedulerDown", "PenstockScheduleLate"}


def await_alerts(site: Site, wanted: set[str]) -> None:
    """Wait until these fire and no others."""
    try:
        eventually("the alerts", lambda: site.firing() == wanted, within=40)
    except AssertionError:
        raise AssertionError(f"wanted {sorted(wanted)}, firing: {site.prometheus.alerts()}") from None


def await_value(site: Site, expression: str, wanted: float) -> None:
    try:
        eventually(expression, lambda: site.scraped(expression) == wanted, within=30)
    except AssertionError:
        raise AssertionError(f"{expression}: {site.scraped(expression)} instead of {wanted}") from None


def check_metrics(site: Site) -> None:
    for role in (*site.apis, *site.schedulers):
        assert promtool("check", "metrics", given=scrape(role.port)) == ""


def check_sums(site: Site) -> None:
    """Counters are summed over processes, and what the store says is told by both APIs and counted once."""
    ended = "SELECT count(*) FROM penstock.ended WHERE state = '{}'"
    for state in ("succeeded", "failed"):
        stored = site.stored(ended.format(state))
        await_value(site, f'sum(penstock_jobs_ended_total{{outcome="{state}"}})', stored)
        await_value(site, f'sum(penstock:jobs{{state="{state}"}}) or vector(0)', stored)
    all_jobs = site.stored("SELECT (SELECT count(*) FROM penstock.jobs) + (SELECT count(*) FROM penstock.ended)")
    await_value(site, "sum(penstock_jobs_submitted_total)", all_jobs)
    await_value(site, "sum(penstock_job_wait_seconds_count)", all_jobs)
    await_value(site, "sum(penstock_job_run_seconds_count)", all_jobs)


def put_schedule(site: Site) -> str:
    """A schedule of the shard that stays, far from its next tick."""
    names = map("hourly-{}".format, count())
    name = next(name for name in names if shard_for_key(schedule_key(name), RING) == RING[0])
    site.call("/v1/schedules", {"name": name, "type": "good", "interval": 3600})
    return name


def test_direct_workers_of_a_server_are_counted_in_its_metrics(site: Site, tmp_path: Path) -> None:
    environ = {
        "PENSTOCK_STORE_URL": site.shards[0].database("another"),
        "PENSTOCK_BROKER_URL": site.valkey.url,
        "PENSTOCK_BROKER_PREFIX": "another",
    }
    server = Server(tmp_path / "data", environ=environ)
    with ending(server):
        for number in range(JOBS):
            with closing(Caller(server.port)) as caller:
                assert caller.call("POST", "/v1/jobs", {"type": "mark", "params": {"n": number}}).ok
        ended = f'penstock_jobs_ended_total{{type="mark",outcome="succeeded"}} {JOBS}'
        ran = f'penstock_job_run_seconds_count{{type="mark"}} {JOBS}'
        eventually("all are counted", lambda: {ended, ran} <= set(scrape(server.port).splitlines()))


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text
