"""A rolling deployment under load: old and new workers side by side, a changed signature and a renamed type."""

import os
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.model.errors import InvalidParams
from penstock.model.wire.jobs import JobItem
from tests.system.harness import WITHIN, Process, Server, ending

OLD = """
from penstock import Penstock

app = Penstock()

@app.job(queue="work")
async def resize(name: str) -> str:
    return "old"

@app.job(queue="work")
async def charge(cents: int) -> str:
    return "old"

@app.job(queue="work")
async def send(to: str) -> str:
    return "old"
"""
NEW = """
from penstock import Penstock

app = Penstock()

@app.job(queue="work")
async def resize(name: str, width: int = 256) -> str:
    return "new"

@app.job(queue="work")
async def charge(cents: int, currency: str) -> str:
    return "new"

@app.job(queue="work")
async def send_mail(to: str) -> str:
    return "new"
"""
BACKLOG = 15

Call = tuple[str, Mapping[str, object]]
OLD_CALLS: tuple[Call, ...] = (("resize", {"name": "a"}), ("charge", {"cents": 5}), ("send", {"to": "a"}))
NEW_CALLS: tuple[Call, ...] = (
    ("resize", {"name": "a", "width": 9}),
    ("charge", {"cents": 5, "currency": "EUR"}),
    ("send", {"to": "a"}),
    ("send_mail", {"to": "a"}),
)


class Load:
    """A caller that goes on submitting until it is told to stop, and keeps the id of everything that was accepted."""

    def __init__(self, url: str) -> None:
        self.calls = OLD_CALLS
        self.accepted: list[str] = []
        self._url = url
        self._stopping = threading.Event()
        self._accepted_more = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        with Client(self._url, patience=30) as client:
            number = 0
            while not self._stopping.wait(0.02):
                number += 1
                self.submit(client, *self.calls[number % len(self.calls)])

    def submit(self, client: Client, name: str, params: Mapping[str, object]) -> None:
        try:
            job = client.submit(name, params).id
        except InvalidParams:
            # What is refused was never accepted: only what the newer signature does not take may be.
            assert (name, params) == OLD_CALLS[1]
            return
        with self._accepted_more:
            self.accepted.append(job)
            self._accepted_more.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Return once more than this many further jobs were accepted."""
        with self._accepted_more:
            after = len(self.accepted)
            assert self._accepted_more.wait_for(lambda: len(self.accepted) > after + count, WITHIN)


def worker(server: Server, folder: Path, module: str) -> Process:
    environ = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    process = Process(
        "worker", f"{module}:app", "--url", server.url, "--executors", "1", folder=folder, environ=environ
    )
    process.says("ready")
    return process


@pytest.mark.slow
def test_a_rolling_deploy_under_load_fails_and_loses_no_job(tmp_path: Path) -> None:
    (tmp_path / "shop_old.py").write_text(OLD)
    (tmp_path / "shop_new.py").write_text(NEW)
    server = Server(tmp_path / "data", "--no-workers", app=None)
    with ending(server), Client(server.url) as client:
        old = worker(server, tmp_path, "shop_old")
        load = Load(server.url)
        with ending(old):
            load.start()
            client.pause("work")
            for call in OLD_CALLS * BACKLOG:
                load.submit(client, *call)
            new = worker(server, tmp_path, "shop_new")
            with ending(new):
                client.alias_type("send", "send_mail")
                load.calls = NEW_CALLS
                for call in NEW_CALLS * BACKLOG:
                    load.submit(client, *call)
                client.resume("work")
                items = [client.wait(job, timeout=30) for job in tuple(load.accepted)]
                assert old.stop() == 0
                load.wait_for_more(20)
                load.stop()
                items += [client.wait(job, timeout=30) for job in load.accepted[len(items) :]]
    assert Counter(item.state for item in items) == {"succeeded": len(load.accepted)}
    assert {item.attempt for item in items} == {1}
    assert ran_by(items) == {
        ("resize", "old"), ("resize", "new"), ("charge", "old"), ("charge", "new"), ("send", "old"), ("send", "new"),
        ("send_mail", "new"),
    }  # fmt: skip


def ran_by(items: list[JobItem]) -> set[tuple[str, object]]:
    return {(item.type, item.result) for item in items}
