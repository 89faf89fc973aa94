"""Huey on SQLite: WAL and synchronous FULL, so that an accepted job survives a power cut."""

import os
from datetime import datetime, timedelta
from pathlib import Path

from huey import SqliteHuey

from peers.adapter import Adapter, become
from peers.job import Payload, mark

FILE = Path(os.environ["BENCH_DATA"]) / "huey.sqlite3"
huey = SqliteHuey("bench", filename=str(FILE), fsync=True, journal_mode="wal")


@huey.task()
def noop(i: int, t: float, user: str, pad: str) -> None:
    mark(i, t)


class HueySqlite(Adapter):
    async def reset(self) -> None:
        huey.storage.close()
        for file in FILE.parent.glob(f"{FILE.name}*"):
            file.unlink()

    async def put(self, job: Payload) -> None:
        noop(**job)

    async def put_later(self, jobs: list[Payload], delay: timedelta) -> None:
        """Straight into the schedule table: `schedule()` would queue the jobs and leave the move to a consumer."""
        due_at = datetime.now() + delay  # noqa: DTZ005  Huey compares naive local times
        for job in jobs:
            huey.storage.add_to_schedule(huey.serialize_task(noop.s(**job)), due_at)

    def worker(self) -> None:
        """One thread: SQLite admits one writer, and two processes did no better. Polls each 10 ms, not 100."""
        polling = ("--delay", "0.01", "--max-delay", "0.01", "--backoff", "1")
        become("huey_consumer", "peers.huey_sqlite.huey", "--worker-type", "thread", "--workers", "1", *polling, "-q")


ADAPTER = HueySqlite()
