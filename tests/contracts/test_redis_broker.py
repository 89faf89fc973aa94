"""The broker on Valkey keeps the contract; and what happens when its server is flushed, killed, silent or full."""

import asyncio
import itertools
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import SignalMessage
from penstock.broker.redis import RedisBroker
from penstock.broker.redis.client import FAILURES, REST, RedisBreaker
from penstock.model.clock import SystemClock, seconds
from penstock.model.errors import BrokerUnavailable, InvalidSetting
from penstock.model.job import BacklogKey, Ticket
from penstock.testing.broker_contract import BrokerContract
from penstock.testing.broker_stage import (
    LONG,
    PROMPTLY,
    ZERO,
    jobs,
    promptly,
    receive,
    ticket,
    tickets,
    wanting,
)
from penstock.testing.clock import SimulatedClock
from servers import FaultProxy, Missing, Valkey
from servers.proxy import Fault
from tests.jumping_clock import JumpingClock

PATIENT = timedelta(seconds=20)
HASTY = timedelta(milliseconds=300)

channels = (f"back-{number}" for number in itertools.count())
prefixes = (f"test-{number}" for number in itertools.count())

Open = Callable[..., Awaitable[RedisBroker]]


def started(folder: Path, *options: str) -> Valkey:
    try:
        return Valkey(folder, 0, *options).start()
    except Missing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with started(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A server that the test may harm."""
    with started(tmp_path / "valkey") as server:
        yield server


@pytest.fixture
def clock() -> JumpingClock:
    """Of the brokers that `opening` opens."""
    return JumpingClock()


@pytest.fixture
async def opening(clock: JumpingClock) -> AsyncIterator[Open]:
    """Opens brokers that are closed afterwards."""
    opened: list[RedisBroker] = []

    async def opening(url: str, deadline: timedelta = PATIENT, **options: Any) -> RedisBroker:
        opened.append(await RedisBroker.open(url, clock, deadline=deadline, **options))
        return opened[-1]

    yield opening
    for broker in opened:
        await broker.close()


async def wait_until_back(broker: RedisBroker, clock: JumpingClock) -> None:
    """Return once the server has confirmed a new subscription; the pause of the broker's breaker is over then too."""
    await receive(broker.listen([next(channels)]), 1)
    clock.jump(2 * REST.total_seconds())


async def in_line(broker: RedisBroker, wanted: Any, limit: int = 10) -> asyncio.Task[list[Ticket]]:
    """A take that stands in the server's line: what is asked after it is answered after it."""
    take = asyncio.ensure_future(broker.take(wanted, limit, LONG))
    await broker.take(wanting("nothing"), 1, timedelta(milliseconds=1))
    await broker.epoch()
    return take


class TestRedisBroker(BrokerContract):
    @pytest.fixture
    async def broker(self, shared: Valkey, opening: Open) -> RedisBroker:
        self.shared = shared
        broker = await opening(shared.url, prefix=next(prefixes))
        await broker.take(wanting("nothing"), 1, timedelta(milliseconds=1))
        return broker

    async def lose(self, broker: Any) -> None:
        self.shared.run("FLUSHALL")

    async def settle_down(self, broker: Any) -> None:
        """All requests share one line: when the last is answered, all are."""
        await super().settle_down(broker)
        await broker.epoch()
        await super().settle_down(broker)

    async def subscribe(self, broker: Any, *signals: str) -> AsyncIterator[SignalMessage]:
        listener: AsyncIterator[SignalMessage] = broker.listen(signals)
        assert {one.signal for one in await receive(listener, len(signals))} == set(signals)
        return listener

    async def test_a_ticket_put_back_keeps_its_place(self, broker: RedisBroker) -> None:
        sent = tickets(4)
        for _ in range(20):
            take = await self.start_take(broker, wanting("mail"), limit=2)
            await broker.publish(sent)
            take.cancel()
            await asyncio.wait({take})
            taken = [] if take.cancelled() else take.result()
            assert taken + await broker.take(wanting("mail"), 10, ZERO) == sent
        assert await broker.depths() == {}

    async def test_those_who_came_first_are_served_first(self, broker: RedisBroker) -> None:
        takes = [await self.start_take(broker, wanting("mail"), limit=1) for _ in range(5)]
        for take in takes:
            one = ticket()
            await broker.publish([one])
            assert await promptly(take) == [one]

    async def test_nothing_is_left_of_takers_and_tickets_that_are_gone(self, broker: RedisBroker) -> None:
        await broker.publish([*tickets(3), ticket("report", "bulk", priority=9)])
        await broker.take(wanting("mail", "report"), 10, ZERO)
        served, left = [await self.start_take(broker, wanting("mail", name)) for name in ("report", "other")]
        await broker.publish(tickets(1, "report"))
        await promptly(served)
        left.cancel()
        await asyncio.wait({left})
        keys = self.shared.run("KEYS", f"*{broker._base}*")  # noqa: SLF001 - what is left shows nowhere else
        assert sorted(key.rpartition(":")[2] for key in keys.split() if key.startswith("{")) == ["epoch", "turn"]


# -- many processes


async def test_racing_takers_of_two_processes_get_each_ticket_once(shared: Valkey, opening: Open) -> None:
    prefix = next(prefixes)
    brokers = [await opening(shared.url, prefix=prefix) for _ in range(2)]
    sent = tickets(2000)
    taken: list[Ticket] = []

    async def drain(broker: RedisBroker) -> None:
        while len(taken) < len(sent):
            taken.extend(await broker.take(wanting("mail"), 7, timedelta(milliseconds=50)))

    async with asyncio.timeout(PROMPTLY), asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(drain(brokers[number % 2]))
        for start in range(0, len(sent), 50):
            await brokers[start // 50 % 2].publish(sent[start : start + 50])
    assert sorted(jobs(taken)) == sorted(jobs(sent))


async def test_a_waiting_taker_is_woken_by_another_process(shared: Valkey, opening: Open) -> None:
    prefix = next(prefixes)
    here, there = [await opening(shared.url, prefix=prefix) for _ in range(2)]
    take = await in_line(here, wanting("mail"))
    one = ticket()
    await there.publish([one])
    assert await promptly(take) == [one]


async def test_a_ticket_goes_past_a_taker_whose_process_is_gone(shared: Valkey, opening: Open) -> None:
    prefix = next(prefixes)
    dead = await opening(shared.url, seconds(2), prefix=prefix)
    alive, publisher = [await opening(shared.url, prefix=prefix) for _ in range(2)]
    gone = await in_line(dead, wanting("mail"))
    await dead._subscriber.close()  # noqa: SLF001 - as a killed process: it is in line and hears nothing
    take = await in_line(alive, wanting("mail"))
    one = ticket()
    await publisher.publish([one])
    assert await promptly(take) == [one]
    gone.cancel()


async def test_prefixes_share_a_server_without_meeting(shared: Valkey, opening: Open) -> None:
    one, other = [await opening(shared.url, prefix=next(prefixes)) for _ in range(2)]
    await one.publish(tickets(1))
    assert await other.take(wanting("mail"), 10, ZERO) == []
    assert await other.depths() == {}
    assert await one.epoch() != await other.epoch()


async def test_signals_reach_every_process(shared: Valkey, opening: Open) -> None:
    prefix = next(prefixes)
    here, there = [await opening(shared.url, prefix=prefix) for _ in range(2)]
    listener = here.listen(["door"])
    assert await receive(listener, 1) == [SignalMessage("door")]
    await there.send_signal("door", b"open")
    assert await receive(listener, 1) == [SignalMessage("door", b"open")]


# -- a memory that was lost


async def test_after_a_flush_all_processes_agree_on_another_epoch(valkey: Valkey, opening: Open) -> None:
    brokers = [await opening(valkey.url) for _ in range(4)]
    before = {await broker.epoch() for broker in brokers}
    valkey.run("FLUSHALL")
    after = set(await asyncio.gather(*(broker.epoch() for broker in brokers)))
    assert (len(before), len(after)) == (1, 1)
    assert before != after


async def test_a_publish_into_a_flushed_memory_reaches_those_who_waited_before(valkey: Valkey, opening: Open) -> None:
    here, there = [await opening(valkey.url) for _ in range(2)]
    take = await in_line(here, wanting("mail"))
    valkey.run("FLUSHALL")
    one = ticket()
    await there.publish([one])
    assert await promptly(take) == [one]


async def test_a_publish_does_not_hide_the_flush_before_it(valkey: Valkey, opening: Open) -> None:
    here, there = [await opening(valkey.url) for _ in range(2)]
    before = await here.epoch()
    valkey.run("FLUSHALL")
    await there.publish(tickets(1))
    assert await here.epoch() == await there.epoch() != before


async def test_a_restart_that_reads_its_memory_back_is_another_epoch(
    tmp_path: Path, opening: Open, clock: JumpingClock
) -> None:
    with started(tmp_path / "valkey", "--appendonly", "yes") as server:
        broker = await opening(server.url)
        before = await broker.epoch()
        await broker.publish(tickets(3))
        server.stop()
        server.start()
        await wait_until_back(broker, clock)
        assert await broker.epoch() != before
        assert await broker.depths() == {BacklogKey("mail", "mail"): 3}


async def test_a_killed_server_that_is_back_works_as_before(valkey: Valkey, opening: Open, clock: JumpingClock) -> None:
    here, there = [await opening(valkey.url) for _ in range(2)]
    before = await here.epoch()
    listener = here.listen(["door"])
    assert await receive(listener, 1) == [SignalMessage("door")]
    take = await in_line(here, wanting("mail"))
    valkey.kill()
    with pytest.raises(BrokerUnavailable):
        await there.publish(tickets(1))
    valkey.start()
    one = ticket()
    await wait_until_back(there, clock)
    assert await there.epoch() != before
    await there.publish([one])
    with suppress(BrokerUnavailable):
        # It raised while the server was away, or stands in line again.
        assert await promptly(take) == [one]
        await there.publish([one])
    await wait_until_back(here, clock)
    assert await here.take(wanting("mail"), 10, LONG) == [one]
    assert await receive(listener, 1) == [SignalMessage("door")]
    await there.send_signal("door", b"back")
    assert await receive(listener, 1) == [SignalMessage("door", b"back")]


async def test_a_broker_opened_before_its_server_works_once_there_is_one(
    valkey: Valkey, opening: Open, clock: JumpingClock, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.stop()
    with caplog.at_level(logging.WARNING):
        broker = await opening(valkey.url)
    assert len([record for record in caplog.records if "cannot be reached" in record.message]) == 1
    with pytest.raises(BrokerUnavailable, match="jobs wait in the store"):
        await broker.publish(tickets(1))
    valkey.start()
    sent = tickets(2)
    await wait_until_back(broker, clock)
    await broker.publish(sent)
    assert await broker.take(wanting("mail"), 10, ZERO) == sent


# -- a server that does not answer


async def test_a_silent_server_is_given_up_at_the_deadline(shared: Valkey, opening: Open, clock: JumpingClock) -> None:
    with FaultProxy(shared.port) as proxy:
        broker = await opening(f"redis://127.0.0.1:{proxy.port}", HASTY, prefix=next(prefixes))
        await wait_until_back(broker, clock)
        await broker.epoch()
        proxy.fault = Fault.SILENT
        for _ in range(FAILURES):
            with pytest.raises(BrokerUnavailable):
                async with asyncio.timeout(PROMPTLY):
                    await broker.publish(tickets(1))
        with pytest.raises(BrokerUnavailable):
            await broker.take(wanting("mail"), 10, LONG)
        proxy.fault = Fault.NONE
        sent = tickets(2)
        await wait_until_back(broker, clock)
        await broker.publish(sent)
        assert set(sent) <= set(await broker.take(wanting("mail"), 10, ZERO))


async def test_after_failures_in_a_row_calls_fail_without_trying(shared: Valkey, opening: Open) -> None:
    clock = SimulatedClock()
    with FaultProxy(shared.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        broker = await RedisBroker.open(url, clock, next(prefixes), deadline=PATIENT)
        proxy.fault = Fault.REFUSING
        for _ in range(FAILURES):
            with pytest.raises(BrokerUnavailable):
                await broker.epoch()
        proxy.fault = Fault.NONE
        with pytest.raises(BrokerUnavailable, match="rests for a moment"):
            await broker.epoch()
        clock.advance(seconds(2))
        assert await broker.epoch()
        await broker.close()


async def test_a_taker_waiting_at_a_server_that_falls_silent_is_told(shared: Valkey, opening: Open) -> None:
    with FaultProxy(shared.port) as proxy:
        broker = await opening(f"redis://127.0.0.1:{proxy.port}", seconds(2), prefix=next(prefixes))
        take = await in_line(broker, wanting("mail"))
        proxy.fault = Fault.SILENT
        with pytest.raises(BrokerUnavailable):
            await promptly(take)


async def test_a_taker_outlasts_a_connection_that_breaks(shared: Valkey, opening: Open) -> None:
    prefix = next(prefixes)
    with FaultProxy(shared.port) as proxy:
        here = await opening(f"redis://127.0.0.1:{proxy.port}", prefix=prefix)
        there = await opening(shared.url, prefix=prefix)
        listener = here.listen(["door"])
        await receive(listener, 1)
        take = await in_line(here, wanting("mail"))
        proxy.fault = Fault.REFUSING
        proxy.fault = Fault.NONE
        assert await receive(listener, 1) == [SignalMessage("door")]
        one = ticket()
        await there.publish([one])
        assert await promptly(take) == [one]


async def test_close_ends_takers_also_while_the_server_is_silent(shared: Valkey) -> None:
    with FaultProxy(shared.port) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        broker = await RedisBroker.open(url, SystemClock(), next(prefixes), deadline=seconds(2))
        take = await in_line(broker, wanting("mail"))
        proxy.fault = Fault.SILENT
        async with asyncio.timeout(PROMPTLY):
            await broker.close()
        with suppress(BrokerUnavailable):
            assert await promptly(take) == []


def test_one_call_in_each_rest_tries_a_server_that_failed() -> None:
    clock = SimulatedClock()
    breaker = RedisBreaker(clock, random.Random(1))
    for _ in range(FAILURES):
        assert breaker.admits()
        breaker.failed()
    assert not breaker.admits()
    clock.advance(seconds(2))
    assert [breaker.admits(), breaker.admits()] == [True, False]
    breaker.worked()
    assert [breaker.admits(), breaker.admits()] == [True, True]


# -- settings and memory


async def test_a_server_that_evicts_is_refused(tmp_path: Path, opening: Open) -> None:
    with started(tmp_path, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        with pytest.raises(InvalidSetting, match=r"allkeys-lru.*set maxmemory-policy noeviction"):
            await opening(server.url)
        server.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await opening(server.url)


async def test_a_policy_without_a_limit_never_evicts(tmp_path: Path, opening: Open) -> None:
    with started(tmp_path, "--maxmemory-policy", "allkeys-lru") as server:
        await opening(server.url)


async def test_a_server_that_does_not_tell_its_settings_is_used_with_a_warning(
    valkey: Valkey, opening: Open, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.run("ACL", "SETUSER", "default", "-config")
    with caplog.at_level(logging.WARNING):
        broker = await opening(valkey.url)
    assert "make sure that it is noeviction" in caplog.text
    await broker.publish(tickets(1))


async def test_a_full_server_takes_no_tickets_and_still_gives_them(valkey: Valkey, opening: Open) -> None:
    broker = await opening(valkey.url)
    sent = tickets(4)
    await broker.publish(sent)
    valkey.run("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(BrokerUnavailable, match=r"refused.*maxmemory"):
        await broker.publish(tickets(1))
    waiting = await in_line(broker, wanting("report"))
    cancelled = asyncio.ensure_future(broker.take(wanting("mail"), 2, ZERO))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert await broker.take(wanting("mail"), 3, ZERO) == sent[:3]
    assert await broker.take(wanting("mail"), 3, ZERO) == sent[3:]
    valkey.run("CONFIG", "SET", "maxmemory", "0")
    await broker.publish(tickets(1, "report"))
    assert len(await promptly(waiting)) == 1


async def test_a_wrong_password_is_refused_and_not_told(tmp_path: Path, opening: Open) -> None:
    with started(tmp_path, "--requirepass", "secret-1") as server:
        for url in (f"redis://:secret-2@127.0.0.1:{server.port}", server.url):
            with pytest.raises(InvalidSetting, match="user or password") as refused:
                await opening(url)
            assert "secret" not in repr(refused.value)
        await (await opening(f"redis://:secret-1@127.0.0.1:{server.port}")).epoch()


@pytest.mark.parametrize("url", ["http://:secret@host", "redis://:sec/ret@host:1", "redis://:secret@host:port", ""])
async def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str, opening: Open) -> None:
    with pytest.raises(InvalidSetting, match="redis://") as refused:
        await opening(url)
    assert not {"sec", "ret", "secret"} & set(str(refused.value).replace("/", " ").split())


async def test_the_password_is_in_no_error_and_no_log(
    valkey: Valkey, opening: Open, clock: JumpingClock, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.stop()
    with caplog.at_level(logging.DEBUG):
        broker = await opening(f"redis://user:secret@127.0.0.1:{valkey.port}/0")
        with pytest.raises(BrokerUnavailable) as trouble:
            await broker.take(wanting("mail"), 1, ZERO)
    assert f"127.0.0.1:{valkey.port}" in str(trouble.value)
    assert "secret" not in str(trouble.value) + caplog.text


async def test_every_scheme_leads_to_the_server(tmp_path: Path, opening: Open) -> None:
    with started(tmp_path, "--unixsocket", str(tmp_path / "socket")) as server:
        urls = [server.url, server.url.replace("redis", "valkey"), f"unix://{tmp_path}/socket"]
        assert len({await (await opening(url)).epoch() for url in urls}) == 1
