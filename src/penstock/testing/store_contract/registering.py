"""Types, paused queues, workers, and whether the shard is well."""

import pytest
from msgspec.structs import replace

from penstock.model.errors import Unavailable
from penstock.model.retry import Retry
from penstock.model.workers import HandlerKind, JobType, Worker, WorkerState
from penstock.testing.store_contract.stage import MINUTE, TICKET, OnStage, Stage


def worker(stage: Stage, name: str) -> Worker:
    return Worker(
        id=name, host="h", pid=7, version="1", types=("mail",), capacity=4, running=2, started_at=stage.clock.now()
    )


class Registering(OnStage):
    async def test_types_are_declared_and_replaced(self, stage: Stage) -> None:
        scan = JobType(
            name="scan",
            queue="slow",
            kind=HandlerKind.COMMAND,
            priority=2,
            retry=Retry.none(),
            timeout_seconds=None,
            params_schema={"type": "object"},
            description="scans",
        )
        mail = JobType(name="mail", queue="mail")
        await stage.store.declare([scan, mail])
        assert await stage.store.types() == [mail, scan]
        await stage.store.declare([replace(mail, queue="fast")])
        assert await stage.store.types() == [replace(mail, queue="fast"), scan]

    async def test_queues_are_paused_and_resumed(self, stage: Stage) -> None:
        for queue in ("a", "b", "a"):
            await stage.store.pause(queue, paused=True)
        assert await stage.store.paused() == {"a", "b"}
        await stage.store.pause("a", paused=False)
        await stage.store.pause("c", paused=False)
        assert await stage.store.paused() == {"b"}

    async def test_workers_are_seen_by_the_shards_clock(self, stage: Stage) -> None:
        second, first = worker(stage, "w2"), worker(stage, "w1")
        await stage.store.see(second)
        stage.clock.advance(MINUTE)
        await stage.store.see(first)
        now = stage.clock.now()
        assert await stage.store.workers() == [replace(first, seen_at=now), replace(second, seen_at=now - MINUTE)]
        draining = replace(second, state=WorkerState.DRAINING, running=0)
        await stage.store.see(draining)
        await stage.store.forget("w1")
        assert await stage.store.workers() == [replace(draining, seen_at=now)]

    async def test_the_shard_tells_its_time(self, stage: Stage) -> None:
        stage.clock.advance(MINUTE)
        assert await stage.store.now() == stage.clock.now()

    async def test_a_healthy_shard_can_be_probed(self, stage: Stage) -> None:
        await stage.store.probe()

    async def test_a_closed_shard_is_unavailable(self, stage: Stage) -> None:
        await stage.store.close()
        for attempt in (stage.store.probe(), stage.store.submit([stage.new()], TICKET), stage.store.counts()):
            with pytest.raises(Unavailable):
                await attempt
