"""How soon a change reaches a reader, and what a crowd of readers costs the server."""

import asyncio
import re
import statistics
import time
from urllib.parse import urlsplit

import msgspec

from penstock.lab.bench import machine
from penstock.lab.bench.rig import TYPE, Amounts, Figure, Rig, Workshop, specs
from penstock.lab.bench.sinks import drain_beside_sinks, tell_sinks
from penstock.lab.children import ChildFailed
from penstock.model.clock import SystemClock
from penstock.model.events import JobEvent

READ_BYTES = 256 * 1024
BATCH_SECONDS = 0.05
IDLE_STEP_SECONDS = 0.1
OPEN_SECONDS = 30.0
SETTLE_SECONDS = 2.0
DEAF_SHARE = 10
"""One of so many readers takes nothing at all."""

_EVENT = msgspec.json.Decoder(JobEvent).decode
_DATA = re.compile(rb"^data: (.*)$", re.MULTILINE)


class StreamReader(asyncio.Protocol):
    """A reader on a bare socket. It counts bytes; `samples` are the ages of events, of a reader that decodes them."""

    def __init__(self, path: str, host: str, *, decodes: bool, deaf: bool) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode()
        self._decodes = decodes
        self._deaf = deaf
        self._clock = SystemClock()
        self._rest = b""
        self.begun = asyncio.get_running_loop().create_future()
        self.bytes = 0
        self.missed = 0
        self.samples: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        if not self.begun.done():
            self.begun.set_result(data.startswith(b"HTTP/1.1 200"))
            if self._deaf:
                self.transport.pause_reading()
        if self._decodes:
            self._decode(data)

    def _decode(self, data: bytes) -> None:
        whole, _, self._rest = (self._rest + data).rpartition(b"\n\n")
        now = self._clock.now()
        self.missed += whole.count(b"event: missed")
        for found in _DATA.findall(whole):
            try:
                self.samples.append((now - _EVENT(found).at).total_seconds() * 1000)
            except msgspec.MsgspecError:
                continue


async def open_readers(rig: Rig, count: int, *, deaf: int = 0, decodes: int = 5) -> list[StreamReader]:
    parts = urlsplit(rig.url)
    loop = asyncio.get_running_loop()
    readers: list[StreamReader] = []
    for number in range(count):
        _, reader = await loop.create_connection(
            lambda number=number: StreamReader(  # type: ignore[misc]
                "/v1/events", parts.netloc, decodes=deaf <= number < deaf + decodes, deaf=number < deaf
            ),
            parts.hostname or "",
            parts.port or 80,
        )
        readers.append(reader)
    async with asyncio.timeout(OPEN_SECONDS):
        if not all(await asyncio.gather(*(reader.begun for reader in readers))):
            raise ChildFailed("the server refused a stream")
    return readers


def events(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Change → reader on an idle system, then with a crowd of readers at a steady rate; drains beside sinks."""
    with workshop.rig() as rig:
        rig.client.pause(TYPE)
        idle = asyncio.run(_idle(rig, amounts))
        crowd = asyncio.run(_crowd(rig, amounts))
    return [
        *_quantiles("change → reader, idle", idle, "one job every 100 ms"),
        *crowd,
        *tell_sinks(workshop, amounts),
        *drain_beside_sinks(workshop, amounts),
    ]


async def _idle(rig: Rig, amounts: Amounts) -> list[float]:
    (reader,) = await open_readers(rig, 1, decodes=1)
    for number in range(amounts.latency_jobs // 2):
        await asyncio.to_thread(rig.client.submit_many, list(specs(number, 1)))
        await asyncio.sleep(IDLE_STEP_SECONDS)  # noqa: TID251 - the pace of the measurement
    await asyncio.sleep(SETTLE_SECONDS)  # noqa: TID251 - what is still on its way
    reader.transport.close()
    return reader.samples


async def _crowd(rig: Rig, amounts: Amounts) -> list[Figure]:
    """Events are submits in batches, at the pace asked for; a tenth of the readers never reads."""
    alone = await _spend(rig, amounts)
    readers = await open_readers(rig, amounts.readers, deaf=amounts.readers // DEAF_SHARE)
    await asyncio.sleep(SETTLE_SECONDS)  # noqa: TID251 - the streams have begun
    before = machine.resident_mib(rig.pid) if machine.AVAILABLE else 0.0
    together = await _spend(rig, amounts)
    after = machine.resident_mib(rig.pid) if machine.AVAILABLE else 0.0
    samples = [age for reader in readers for age in reader.samples]
    mib = sum(reader.bytes for reader in readers) / (1 << 20)
    for reader in readers:
        reader.transport.abort()
    name = f"{amounts.readers} readers, {amounts.events_per_second:,} events/s"
    missed = sum(reader.missed for reader in readers)
    return [
        *_quantiles(f"{name}: change → reader", samples, f"{mib / amounts.events_seconds:,.0f} MiB/s, {missed} missed"),
        Figure("events", f"{name}: server", together, "% of a core", f"{alone:.0f} % without readers"),
        Figure("events", f"{name}: server", after - before, "MiB more", f"{before:.0f} MiB before"),
    ]


async def _spend(rig: Rig, amounts: Amounts) -> float:
    """Submit at the pace asked for; the processor time of the server meanwhile, in percent of a core."""
    batch = max(1, round(amounts.events_per_second * BATCH_SECONDS))
    began, spent = time.monotonic(), machine.cpu_seconds(rig.pid) if machine.AVAILABLE else 0.0
    for number in range(round(amounts.events_seconds / BATCH_SECONDS)):
        await asyncio.to_thread(rig.client.submit_many, list(specs(number * batch, batch)))
        await asyncio.sleep(max(0.0, began + (number + 1) * BATCH_SECONDS - time.monotonic()))  # noqa: TID251 - the pace
    took = time.monotonic() - began
    used = (machine.cpu_seconds(rig.pid) if machine.AVAILABLE else 0.0) - spent
    await asyncio.sleep(SETTLE_SECONDS)  # noqa: TID251 - what is still on its way
    return used / took * 100


def _quantiles(name: str, samples: list[float], note: str) -> list[Figure]:
    if len(samples) < 2:
        raise ChildFailed("no event reached a reader")
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return [
        Figure("events", f"{name}, p50", cuts[49], "ms", note),
        Figure("events", f"{name}, p99", cuts[98], "ms", f"{len(samples):,} events"),
    ]
