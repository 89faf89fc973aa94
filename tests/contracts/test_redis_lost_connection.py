"""A connection to Valkey that is lost while others write to it, on each event loop: no caller meets a fault of ours."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.asyncio import Connection
from redis.exceptions import ConnectionError as Disconnected

from penstock.broker.redis.client import Pipeline, RedisAddress, RedisClient
from penstock.model.clock import SystemClock
from penstock.model.errors import BrokerUnavailable
from servers import Valkey
from tests.contracts.test_redis_broker import started

PATIENT = timedelta(seconds=20)

Run = Callable[[Coroutine[Any, Any, None]], None]


class Watched(RedisAddress):
    """Remembers the connections it makes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.made: list[Connection] = []

    async def connect(self) -> Connection:
        self.made.append(await super().connect())
        return self.made[-1]


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with started(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on a loop of one kind."""

    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main)

    return run


def lose(connection: Connection) -> None:
    """Lose a connection: what is started right after this writes to it before its reader is told of the loss."""
    connection._writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001 - redis-py shows it nowhere


def test_a_call_that_meets_a_connection_just_lost_is_repeated_on_another(valkey: Valkey, run: Run) -> None:
    async def main() -> None:
        address = Watched(valkey.url)
        client = RedisClient(address, PATIENT, SystemClock(), random.Random(1))
        assert await client.ask("ECHO", "before") == b"before"
        lose(address.made[0])
        assert await asyncio.create_task(client.ask("ECHO", "after")) == b"after"
        assert len(address.made) == 2
        await client.close()

    run(main())


def test_a_call_that_meets_a_server_just_gone_is_told_that_it_is(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        with started(tmp_path / "valkey") as server:
            address = Watched(server.url)
            client = RedisClient(address, PATIENT, SystemClock(), random.Random(1))
            await client.ask("ECHO", "before")
            server.kill()
        lose(address.made[0])
        with pytest.raises(BrokerUnavailable):
            await asyncio.create_task(client.ask("ECHO", "after"))
        await client.close()

    run(main())


def test_no_error_is_left_behind_by_a_call_that_could_not_be_sent(
    valkey: Valkey, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        connection = await RedisAddress(valkey.url).connect()
        pipeline = Pipeline(connection)
        lose(connection)
        with pytest.raises(Disconnected):
            await asyncio.create_task(pipeline.ask(["ECHO", "never"]))
        await pipeline.close()

    with caplog.at_level(logging.ERROR, "asyncio"):
        run(main())
    assert not caplog.records
