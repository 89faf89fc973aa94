"""Celery with the prefork pool on Redis, without a result backend."""

from datetime import timedelta

from celery import Celery

from peers import valkey
from peers.adapter import Adapter, become
from peers.job import Payload, mark

app = Celery("bench", broker=valkey.URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=64,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(i: int, t: float, user: str, pad: str) -> None:
    mark(i, t)


class CeleryPrefork(Adapter):
    async def reset(self) -> None:
        valkey.flush()

    async def put(self, job: Payload) -> None:
        noop.apply_async(kwargs=job)

    async def put_later(self, jobs: list[Payload], delay: timedelta) -> None:
        for job in jobs:
            noop.apply_async(kwargs=job, countdown=delay.total_seconds())

    def worker(self) -> None:
        quiet = ("--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat")
        become("celery", "-A", "peers.celery:app", "worker", "--pool", "prefork", "--concurrency", "2", *quiet)


ADAPTER = CeleryPrefork()
