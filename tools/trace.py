"""Traces one job through the code: every function of the package that is entered, in order, in all threads.

    python -m tools.trace                        a submit over HTTP, on SQLite
    python -m tools.trace --postgres             the same through the orchestrator, on a PostgreSQL of its own
    python -m tools.trace --steps submit claim settle get
    python -m tools.trace --list                 with the functions in order

Requests go to the API's ASGI application in this process, so nothing of uvicorn or of a worker is counted. Each step
runs a few times before it is traced, so that what is read once is not counted either.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.api import create_app
from penstock.backends import open_engine
from penstock.config import Settings, load
from servers import Postgres

Message = MutableMapping[str, Any]
INNER = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")
CONVERSIONS = ("model/", "store/rows.py", "store/postgres/arrays.py")
"""Files of pure values, which no call has to be followed through."""
STEPS = ("submit", "claim", "settle", "get")
REHEARSALS = 3


@dataclass(frozen=True)
class Hop:
    """One function that was entered: its file below the package, and its name."""

    file: str
    function: str


@dataclass
class Tracer:
    """Records hops while it is on. A coroutine that is resumed is not entered again."""

    hops: list[Hop] = field(default_factory=list)
    _on: bool = False
    _frames: dict[int, FrameType] = field(default_factory=dict)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """To this thread, and to those that start while the body runs."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def on(self) -> Iterator[None]:
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self._on or event != "call" or id(frame) in self._frames:
            return
        _, inside, file = frame.f_code.co_filename.rpartition("/penstock/")
        if inside:
            self._frames[id(frame)] = frame
            if not frame.f_code.co_qualname.endswith(INNER):
                self.hops.append(Hop(file, frame.f_code.co_qualname))


class Calls:
    """The requests of one job's life, each made to the application itself."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._job = ""
        self._fence = 0

    async def make(self, step: str) -> None:
        match step:
            case "submit":
                self._job = (await self._ask("POST", "/v1/jobs", {"type": "traced", "params": {}}))["id"]
            case "claim":
                body = {"types": ["traced"], "limit": 1, "wait_seconds": 5}
                (claim,) = (await self._ask("POST", "/v1/workers/tracer/claim", body))["claims"]
                self._job, self._fence = claim["job"], claim["fence"]
            case "settle":
                outcome = {"job": self._job, "fence": self._fence, "result": 1}
                await self._ask("POST", "/v1/workers/tracer/settle", {"outcomes": [outcome]})
            case _:
                await self._ask("GET", f"/v1/jobs/{self._job}")

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        sent: list[Message] = []
        incoming: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> Message:
            return incoming.pop() if incoming else await asyncio.get_running_loop().create_future()

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(_scope(method, path, content), receive, send)
        if sent[0]["status"] >= 400:
            raise SystemExit(f"{method} {path}: {sent[0]['status']} {sent[1]['body'].decode()}")
        return json.loads(sent[1]["body"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL and trace through the orchestrator")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=["submit"], help="what to trace, in order")
    parser.add_argument("--list", action="store_true", help="print the functions in order")
    asked = parser.parse_args()
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        flags: dict[str, object] = {"server.data": str(folder), "server.allow_unknown_types": True}
        if asked.postgres:
            server = Postgres(folder / "postgres")
            server.start()
            undo.callback(server.stop)
            flags["store.url"] = server.database("trace")
        traced = asyncio.run(trace(load(None, {}, flags), asked.steps))
    for step, hops in traced.items():
        print_figures(step, hops)
        if asked.list:
            print(*(f"    {hop.file}: {hop.function}" for hop in hops), sep="\n")


async def trace(settings: Settings, steps: Sequence[str]) -> dict[str, list[Hop]]:
    """The hops of each step."""
    tracer = Tracer()
    with tracer.attached():
        return await _trace(tracer, settings, steps)


async def _trace(tracer: Tracer, settings: Settings, steps: Sequence[str]) -> dict[str, list[Hop]]:
    async with open_engine(settings) as engine:
        calls = Calls(create_app(engine))
        for _ in range(REHEARSALS):
            for step in STEPS:
                await calls.make(step)
        traced = {}
        for step in STEPS:
            tracer.hops = []
            with tracer.on():
                await calls.make(step)
            traced[step] = tracer.hops
    return {step: traced[step] for step in steps}


def print_figures(step: str, hops: Sequence[Hop]) -> None:
    """Functions from the request to the answer, to the last SQL statement, and from the engine to that statement."""
    start = next(place for place, hop in enumerate(hops) if hop.file.startswith("api/") and step in hop.function)
    end = max(place for place, hop in enumerate(hops) if hop.file.endswith("/statements.py"))
    engine = max(place for place, hop in enumerate(hops[:end]) if hop.file.startswith("engine/"))
    print(f"{step}")
    print(f"  request to answer: {_counted(hops)}")
    print(f"  operation to SQL, without conversions: {_counted(_steps(hops[start : end + 1]))}")
    print(f"  engine to SQL, without conversions: {_counted(_steps(hops[engine + 1 : end + 1]))}")


def _steps(hops: Sequence[Hop]) -> list[Hop]:
    return [hop for hop in hops if not hop.file.startswith(CONVERSIONS)]


def _counted(hops: Sequence[Hop]) -> str:
    return f"{len(hops)} functions entered, {len(set(hops))} different ones, {len({hop.file for hop in hops})} files"


def _scope(method: str, path: str, content: bytes) -> Message:
    headers = [(b"host", b"127.0.0.1:7373"), (b"content-type", b"application/json")]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "root_path": "",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 7373),
        "headers": [*headers, (b"content-length", str(len(content)).encode())],
    }


if __name__ == "__main__":
    main()
