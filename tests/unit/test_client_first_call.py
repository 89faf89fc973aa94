"""What the first call costs: the HTTP library and TLS contexts are had off the event loop, or not at all."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock import AsyncClient, Client, Penstock
from penstock.model.errors import ServerUnavailable

FIRST_SUBMIT = """
import asyncio, sys, threading
from penstock import Penstock
from penstock.model.errors import ServerUnavailable

app = Penstock({url!r}, patience=0)

@app.job
async def add(a: int) -> int: ...

class Watcher:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("httpx2", "httpcore2", "anyio", "h11", "idna")):
            print(name, "on" if threading.current_thread() is threading.main_thread() else "off")

async def submit():
    try:
        await add.submit_async(1)
    except ServerUnavailable:
        await app.async_client.close()

sys.meta_path.insert(0, Watcher())
asyncio.run(submit())
"""


@pytest.fixture
def port() -> Iterator[int]:
    """One where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_the_first_submit_imports_the_http_library_off_the_event_loop(port: int) -> None:
    script = FIRST_SUBMIT.format(url=f"http://127.0.0.1:{port}")
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    where = dict(line.split() for line in told.splitlines())
    assert where["httpx2"] == where["httpcore2"] == where["anyio._backends._asyncio"] == "off"
    assert [name for name, thread in where.items() if thread == "on"] == []


class Contexts:
    """The threads in which contexts with certificates to trust were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import httpcore2

        self.threads: list[int] = []
        self._make = httpcore2.default_ssl_context
        monkeypatch.setattr(httpcore2, "default_ssl_context", self)

    def __call__(self, **options: bool) -> object:
        self.threads.append(threading.get_ident())
        return self._make(**options)


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> Contexts:
    return Contexts(monkeypatch)


async def get(url: str) -> None:
    async with AsyncClient(url, patience=0) as client:
        with pytest.raises(ServerUnavailable):
            await client.get("0190a6e2-0000-7000-8000-000000000000")


async def test_plain_http_needs_no_certificates(port: int, contexts: Contexts) -> None:
    url = f"http://127.0.0.1:{port}"
    await get(url)
    with Client(url, patience=0) as client, pytest.raises(ServerUnavailable):
        client.get("0190a6e2-0000-7000-8000-000000000000")
    assert contexts.threads == []


async def test_certificates_are_read_once_and_off_the_event_loop(port: int, contexts: Contexts) -> None:
    async with AsyncClient(f"https://127.0.0.1:{port}", patience=0) as client:
        asked = [client.get("0190a6e2-0000-7000-8000-000000000000") for _ in range(5)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ServerUnavailable] * 5
    assert len(contexts.threads) == 1
    assert contexts.threads[0] != threading.get_ident()


async def test_a_caller_that_is_cancelled_leaves_the_others_their_connections(port: int) -> None:
    async with AsyncClient(f"http://127.0.0.1:{port}", patience=0) as client:
        first, second = (asyncio.create_task(client.get("0190a6e2-0000-7000-8000-000000000000")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        answers = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError, ServerUnavailable]


@pytest.mark.parametrize("patience", [0, None])
def test_an_app_passes_its_patience_on(port: int, monkeypatch: pytest.MonkeyPatch, patience: float | None) -> None:
    monkeypatch.setenv("PENSTOCK_PATIENCE", "0" if patience is None else "soon")
    app = Penstock(f"http://127.0.0.1:{port}", patience=patience)

    @app.job
    async def add(a: int) -> int:
        return a

    with app.client, pytest.raises(ServerUnavailable):
        add.submit(1)
