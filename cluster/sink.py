"""The sink of webhooks, as a process of its own: it answers in the mood of its control file, and logs what it accepts.

`python -m cluster.sink PORT LOG MOOD_FILE`. A request is in the log before it is answered with 2xx, and no other is.
Beside the mood file it writes a line for every request, with the mood that it met.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from cluster.roles import ROOT
from servers import Launched

SLOW_SECONDS = 0.3
GIGABYTE = 1 << 30
METADATA = "http://169.254.169.254/latest/meta-data/"
_CHUNK = b"x" * 65536
_DONE = b"HTTP/1.1 204 Done\r\n\r\n"


class Mood(StrEnum):
    """How a sink answers. `down`: there is no process."""

    WELL = "well"
    DOWN = "down"
    SLOW = "slow"
    ERROR = "answers 500"
    GONE = "answers 410"
    HANG = "hangs"
    GIGABYTE = "sends a gigabyte"
    REDIRECT = "redirects"


REFUSALS = {
    Mood.ERROR: b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n",
    Mood.GONE: b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n",
    Mood.REDIRECT: f"HTTP/1.1 302 Found\r\nLocation: {METADATA}\r\nContent-Length: 0\r\n\r\n".encode(),
}


class Arrival(Struct, frozen=True):
    """One line of the sink's log: a request that was accepted, with its exact bytes, by the machine's clock."""

    at: datetime
    path: str
    headers: dict[str, str]
    body: bytes


class Sink(Launched):
    """The process, as those see it that start it."""

    name = "sink"

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__(folder)
        self.arrivals_file = log
        self._mood_file = folder / "mood"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "cluster.sink", str(self.port), str(self.arrivals_file), str(self._mood_file)]

    def environ(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

    def change_mood(self, mood: Mood) -> None:
        """Have the next requests answered so. `down` kills it, any other mood starts it if it is down."""
        if mood is Mood.DOWN:
            self.kill()
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self._mood_file.with_suffix(".new")
        fresh.write_text(mood)
        fresh.replace(self._mood_file)
        if not self.alive:
            self.start()

    def arrivals(self) -> list[Arrival]:
        """What was accepted, in order. A line that a kill cut off was never answered."""
        if not self.arrivals_file.exists():
            return []
        decode = msgspec.json.Decoder(Arrival).decode
        return [decode(line) for line in self.arrivals_file.read_bytes().splitlines(keepends=True) if _is_whole(line)]

    def moods_met(self) -> Counter[str]:
        """How many requests met each mood; one that is down is met by none."""
        met = _met_file(self._mood_file)
        return Counter(met.read_text().splitlines()) if met.exists() else Counter()


def _met_file(mood_file: Path) -> Path:
    return mood_file.with_suffix(".met")


def _is_whole(line: bytes) -> bool:
    return line.endswith(b"}\n")


class SinkServer:
    """Serves connections, one request after the other on each."""

    def __init__(self, log: Path, mood_file: Path) -> None:
        self._log = _open_to_append(log)
        self._met = _open_to_append(_met_file(mood_file))
        # What an earlier process was killed at writing must not become one line with what follows.
        os.write(self._log, b"\n")
        self._mood_file = mood_file

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                path, headers, body = await _read_request(reader)
                await self._answer(Arrival(datetime.now(UTC), path, headers, body), reader, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    async def _answer(self, request: Arrival, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mood = Mood(self._mood_file.read_text())
        os.write(self._met, f"{mood}\n".encode())
        match mood:
            case Mood.ERROR | Mood.GONE | Mood.REDIRECT:
                writer.write(REFUSALS[mood])
            case Mood.HANG:
                await reader.read()
                raise ConnectionError
            case Mood.GIGABYTE:
                self._accept(request)
                await _send_gigabyte(writer)
            case Mood.SLOW:
                await asyncio.sleep(SLOW_SECONDS)
                self._accept(request)
                writer.write(_DONE)
            case _:
                self._accept(request)
                writer.write(_DONE)

    def _accept(self, request: Arrival) -> None:
        os.write(self._log, msgspec.json.encode(request) + b"\n")


def _open_to_append(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


async def _send_gigabyte(writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 200 Much\r\nContent-Length: {GIGABYTE}\r\n\r\n".encode())
    for _ in range(GIGABYTE // len(_CHUNK)):
        writer.write(_CHUNK)
        await writer.drain()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
    return line.split(" ")[1], headers, await reader.readexactly(int(headers["content-length"]))


async def main(port: int, log: Path, mood_file: Path) -> None:
    server = await asyncio.start_server(SinkServer(log, mood_file).serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])))
