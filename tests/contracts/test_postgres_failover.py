"""A shard whose URL names several hosts: one that is frozen costs its share of the deadline, and only once."""

import asyncio
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from click.testing import CliRunner

from penstock.cli import ROOT
from penstock.model.clock import SystemClock
from penstock.model.errors import InvalidSetting, StoreUnavailable
from penstock.model.ids import ShardId
from penstock.model.shards import ShardMember, shard_map
from penstock.orchestrator import ShardedStore
from penstock.store import Shard
from penstock.store.postgres import PostgresStore
from penstock.store.postgres.connection import PostgresAddress
from servers import FaultProxy
from servers.proxy import Fault
from tests.logs import log_line
from tests.postgres import database, server

DEADLINE = timedelta(seconds=2)
LONG = timedelta(seconds=30)
FAILOVER_SECONDS = 15.0


@contextmanager
def frozen_host() -> Iterator[int]:
    """A port that answers as a frozen server does: the connection stands, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def port() -> int:
    return int(str(psycopg.conninfo.conninfo_to_dict(database(18))["port"]))


def url(*ports: int, query: str = "") -> str:
    return f"postgresql://penstock@{','.join(f'127.0.0.1:{one}' for one in ports)}/jobs{query}"


@pytest.fixture(autouse=True)
def tables() -> None:
    database(18)


async def test_a_store_opens_while_its_first_host_is_frozen() -> None:
    with frozen_host() as frozen:
        store = await PostgresStore.open(url(frozen, port()), deadline=DEADLINE)
        await store.probe()
        await store.close()


async def test_a_frozen_host_costs_its_share_once() -> None:
    """The host that answered is tried first from then on; else each of these would wait a second."""
    with frozen_host() as frozen:
        store = await PostgresStore.open(url(frozen, port()), deadline=DEADLINE)
        began = time.monotonic()
        await asyncio.gather(*(store.probe() for _ in range(5)))
        assert time.monotonic() - began < DEADLINE.total_seconds() / 2
        await store.close()


async def test_the_connect_timeout_of_the_url_shortens_the_share() -> None:
    with frozen_host() as frozen:
        began = time.monotonic()
        store = await PostgresStore.open(url(frozen, port(), query="?connect_timeout=1"), deadline=LONG)
        assert time.monotonic() - began < FAILOVER_SECONDS
        await store.close()


async def test_a_primary_that_freezes_is_left_for_the_other_host_after_one_deadline() -> None:
    """However many connections to it lie idle."""
    with FaultProxy(port()) as proxy:
        store = await PostgresStore.open(url(proxy.port, port()), deadline=DEADLINE)
        await asyncio.gather(*(store.probe() for _ in range(10)))
        proxy.fault = Fault.SILENT
        with pytest.raises(StoreUnavailable):
            await store.counts()
        assert await store.counts() == []
        await store.close()


@pytest.mark.slow
async def test_a_shard_whose_primary_freezes_is_well_again_within_fifteen_seconds() -> None:
    """With the deadline and the breaker as they are by default."""

    async def opened(number: ShardId, where: str) -> Shard:
        return await PostgresStore.open(where, shard=number)

    with FaultProxy(port()) as proxy, log_line("shard 0 answers again") as well:
        members = shard_map([ShardMember(number=ShardId(0), url=url(proxy.port, port()))])
        store = await ShardedStore.open(members, opened, SystemClock(), random.Random(1))
        await asyncio.gather(*(store.counts() for _ in range(10)))
        async with asyncio.timeout(FAILOVER_SECONDS):
            proxy.fault = Fault.SILENT
            with pytest.raises(StoreUnavailable):
                await store.counts()
            await well.wait()
            assert await store.counts() == []
        assert store.unavailable() == ()
        await store.close()


async def test_a_host_that_takes_no_writes_is_passed_over() -> None:
    """Without a word in the URL, since a store on a standby could do nothing."""
    for one in (server(16), server(18)):
        one.database("followed")
        one.run("DROP ROLE IF EXISTS follower")
        one.run("CREATE ROLE follower LOGIN SUPERUSER")
    server(18).run("ALTER ROLE follower SET default_transaction_read_only = on")
    hosts = f"127.0.0.1:{server(18).port},127.0.0.1:{server(16).port}"
    store = await PostgresStore.open(f"postgresql://follower@{hosts}/followed", deadline=LONG)
    await store.close()
    assert server(16).run("SELECT count(*) FROM penstock.shard", "followed") == "1"


async def test_every_host_is_named_when_none_answers() -> None:
    with frozen_host() as frozen, FaultProxy(1) as proxy:
        proxy.fault = Fault.REFUSING
        with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{frozen}: no connection within .*:{proxy.port}: "):
            await PostgresStore.open(url(frozen, proxy.port), deadline=DEADLINE)


@pytest.mark.parametrize("wanted", ["standby", "read-only", "prefer-standby"])
def test_a_url_that_asks_for_a_standby_is_refused(wanted: str) -> None:
    with pytest.raises(InvalidSetting, match="a shard is written to"):
        PostgresAddress.parse(f"postgresql://db1,db2/penstock?target_session_attrs={wanted}")


def test_hosts_and_ports_that_do_not_match_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="one port for each"):
        PostgresAddress.parse("postgresql://db1:1,db2:2,db3/penstock?port=1,2")


def test_db_status_names_every_host_of_a_shard() -> None:
    with frozen_host() as frozen:
        told = CliRunner().invoke(ROOT, ["db", "status", "--url", url(frozen, port())])
    assert told.exit_code == 0, told.output
    assert f"0 at 127.0.0.1:{frozen},127.0.0.1:{port()}/jobs" in told.output
