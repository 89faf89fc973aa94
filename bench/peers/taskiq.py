"""Taskiq on a Redis list, without a result backend."""

from taskiq_redis import ListQueueBroker

from peers import valkey
from peers.adapter import Adapter, become
from peers.job import Payload, mark

broker = ListQueueBroker(valkey.URL)


@broker.task(task_name="noop")
async def noop(i: int, t: float, user: str, pad: str) -> None:
    mark(i, t)


class Taskiq(Adapter):
    async def reset(self) -> None:
        valkey.flush()

    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def put(self, job: Payload) -> None:
        await noop.kiq(**job)

    def worker(self) -> None:
        """Arguments are not parsed by pydantic, which is the faster setting."""
        options = ("--workers", "2", "--max-async-tasks", "100", "--log-level", "ERROR", "--no-parse")
        become("taskiq", "worker", "peers.taskiq:broker", *options)


ADAPTER = Taskiq()
