"""Penstock, embedded: its API and SQLite store in one process, one worker process beside it, all over HTTP."""

import os
from datetime import timedelta

from peers.adapter import Adapter, become
from peers.job import Payload

APP = "peers.penstock_app:app"
URL = f"http://127.0.0.1:{os.environ['BENCH_PORT']}"
os.environ["PENSTOCK_URL"] = URL


class PenstockEmbedded(Adapter):
    async def reset(self) -> None:
        """Nothing to do: the bench starts the server anew on an empty folder before each step."""

    async def put(self, job: Payload) -> None:
        from peers.penstock_app import noop

        noop.submit(**job)

    async def put_many(self, jobs: list[Payload]) -> None:
        from peers.penstock_app import noop

        noop.submit_many(jobs)

    async def put_later(self, jobs: list[Payload], delay: timedelta) -> None:
        from peers.penstock_app import noop

        noop.using(delay=delay).submit_many(jobs)

    def server(self) -> None:
        """The queue is filled before a worker has declared the job, so unknown types must be allowed."""
        place = ("--port", os.environ["BENCH_PORT"], "--data", os.environ["BENCH_SERVER_DATA"])
        become("penstock", "up", APP, *place, "--no-workers", "--allow-unknown-types", "--log-level", "warning")

    def worker(self) -> None:
        become("penstock", "worker", APP, "--url", URL, "--capacity", "256", "--log-level", "warning")


ADAPTER = PenstockEmbedded()
