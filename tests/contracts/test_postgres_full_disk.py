"""A PostgreSQL server whose disk is full: nothing is acknowledged, and nobody says that the shard is well."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import psycopg
import pytest

from penstock.model.errors import StoreUnavailable
from penstock.store.postgres import PostgresStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import TICKET, StoreStage
from tests.postgres import server

LARGE = b'{"x":"' + b"x" * 4000 + b'"}'
TABLES = ("jobs", "ballast")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """4 MiB that everybody may write to."""
    folder = Path(mkdtemp(prefix="penstock-small-disk-"))
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=777", "tmpfs", folder], check=False)
        if mounted.returncode != 0:
            pytest.skip("needs the right to mount a small file system")
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=False)
        folder.rmdir()


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    out = os.open(filler, os.O_CREAT | os.O_WRONLY)
    with suppress(OSError):
        while True:
            os.write(out, bytes(4096))
    os.close(out)
    return filler


def put_on(disk: Path, url: str) -> None:
    place = disk / "tables"
    place.mkdir(mode=0o777)
    if account := server(18).account():
        os.chown(place, account.pw_uid, account.pw_gid)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
        for name in TABLES:
            connection.execute(f"ALTER TABLE penstock.{name} SET TABLESPACE small".encode())


def take_off(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for name in TABLES:
            connection.execute(f"ALTER TABLE penstock.{name} SET TABLESPACE pg_default".encode())
        connection.execute("DROP TABLESPACE small")


async def test_a_server_that_refuses_submits_is_not_well_although_a_probe_would_fit(small_disk: Path) -> None:
    url = await asyncio.to_thread(server(18).database, "full")
    store = await PostgresStore.open(url)
    stage = StoreStage(store, SimulatedClock())
    await asyncio.to_thread(put_on, small_disk, url)
    kept = await stage.submit()
    filler = fill(small_disk)
    await store.probe()
    with pytest.raises(StoreUnavailable):
        await store.submit([stage.new(params=LARGE) for _ in range(400)], TICKET)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.probe()
    filler.unlink()
    await store.probe()
    assert [job.id for job in await stage.all_jobs()] == [kept.id]
    await stage.submit()
    await store.close()
    await asyncio.to_thread(take_off, url)
