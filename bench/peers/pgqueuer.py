"""PGQueuer on PostgreSQL with asyncpg."""

import asyncio
import json
import logging
import os
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from peers.adapter import Adapter, run_copies
from peers.job import Payload, mark, payload

URL = os.environ["BENCH_PG_URL"]
BATCH = 100
POOL = 16
"""Connections for many callers; 8 and 32 were no faster."""


class Pgqueuer(Adapter):
    async def reset(self) -> None:
        server = await asyncpg.connect(URL.rsplit("/", 1)[0] + "/postgres")
        await server.execute("drop database if exists bench with (force)")
        await server.execute("create database bench")
        await server.close()
        await self.open()
        await self.queries.install()
        await self.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(URL)
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def close(self) -> None:
        await self.connection.close()

    async def put(self, job: Payload) -> None:
        await self.queries.enqueue("noop", _encoded(job), 0)

    async def put_from(self, callers: int, seconds: float) -> int:
        """Each on a connection of a pool: one connection serves one call at a time."""
        async with asyncpg.create_pool(URL, min_size=POOL, max_size=POOL) as pool:
            ends_at = time.perf_counter() + seconds
            return sum(await asyncio.gather(*(_put_until(ends_at, pool) for _ in range(callers))))

    async def put_many(self, jobs: list[Payload]) -> None:
        count = len(jobs)
        await self.queries.enqueue(["noop"] * count, [_encoded(job) for job in jobs], [0] * count)

    async def put_later(self, jobs: list[Payload], delay: timedelta) -> None:
        count = len(jobs)
        await self.queries.enqueue(["noop"] * count, [_encoded(job) for job in jobs], [0] * count, [delay] * count)

    def worker(self) -> None:
        run_copies(2, sys.executable, "-m", "peers.pgqueuer")


async def _put_until(ends_at: float, pool: asyncpg.Pool) -> int:
    jobs = 0
    while time.perf_counter() < ends_at:
        async with pool.acquire() as connection:
            await Queries(AsyncpgDriver(connection)).enqueue("noop", _encoded(payload(jobs)), 0)
        jobs += 1
    return jobs


def _encoded(job: Payload) -> bytes:
    return json.dumps(job).encode()


async def _work() -> None:
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(URL))

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        arguments = json.loads(job.payload or b"")
        mark(arguments["i"], arguments["t"])

    await queue.run(batch_size=BATCH)


ADAPTER = Pgqueuer()

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(_work())
