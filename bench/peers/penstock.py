"""Penstock, embedded: its API and SQLite store in one process, one worker beside it, everything over HTTP."""

import os
from datetime import timedelta

from peers.adapter import Adapter, become
from peers.job import Payload
from peers.penstock_app import app, noop
from penstock.lab.bench.throughput import posts_per_second, submits
from penstock.model.clock import SystemClock

APP = "peers.penstock_app:app"
PORT = os.environ["BENCH_PORT"]
URL = os.environ["PENSTOCK_URL"] = f"http://127.0.0.1:{PORT}"
CAPACITY = 256


class PenstockEmbedded(Adapter):
    async def reset(self) -> None:
        """Nothing to do: the bench starts the server anew on an empty folder before each step."""

    async def open(self) -> None:
        app.client.health()

    async def close(self) -> None:
        app.client.close()

    async def put(self, job: Payload) -> None:
        noop.submit(**job)

    async def put_from(self, callers: int, seconds: float) -> int:
        rate = await posts_per_second(URL, submits(URL), callers, seconds, SystemClock())
        return round(rate * seconds)

    async def put_many(self, jobs: list[Payload]) -> None:
        noop.submit_many(jobs)

    async def put_later(self, jobs: list[Payload], delay: timedelta) -> None:
        noop.using(delay=delay).submit_many(jobs)

    def server(self) -> None:
        """The queue is filled before a worker has declared the job, so unknown types must be allowed."""
        place = ("--port", PORT, "--data", os.environ["BENCH_SERVER_DATA"])
        become("penstock", "up", APP, *place, "--no-workers", "--allow-unknown-types", "--log-level", "warning")

    def worker(self) -> None:
        become("penstock", "worker", APP, "--url", URL, "--capacity", str(CAPACITY), "--log-level", "warning")


ADAPTER = PenstockEmbedded()
