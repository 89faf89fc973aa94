"""One browser for all tests, and the servers that its pages look at."""

import inspect
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from penstock.client import Client
from tests.browser.chromium import expect, open_browser
from tests.browser.scene import SCENE, Seeded
from tests.system.harness import Server, ending
from tools.page import PAGE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SMALL = {"PENSTOCK_FLEET_MAX": "2", "PENSTOCK_FLEET_CAPACITY": "4", "PENSTOCK_WORKER_EXECUTORS": "1"}


AXE = PAGE / "node_modules" / "axe-core" / "axe.min.js"


def axe_source() -> str:
    """The script that looks for what keeps people out; evaluated, since the page's policy lets in no other script."""
    if not AXE.exists():
        assert "CI" not in os.environ, f"{AXE} is missing: make page"
        pytest.skip("axe-core is not installed: make page")
    return AXE.read_text("utf-8")


class Shop:
    """A server with jobs in every state."""

    def __init__(self, server: Server, client: Client) -> None:
        self.url = server.url
        self.client = client
        self.seeded = Seeded(client)


# Playwright keeps an event loop running in its thread while the browser is open. In the main thread, that would
# be in the way of every asynchronous test that the same process runs meanwhile.
_BROWSER_THREAD = ThreadPoolExecutor(1, thread_name_prefix="browser")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run the tests of this folder in the browser's thread."""
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    _BROWSER_THREAD.submit(pyfuncitem.obj, **arguments).result()
    return True


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    opened = open_browser()
    browser = _BROWSER_THREAD.submit(opened.__enter__).result()
    expect.set_options(timeout=20_000)
    yield browser
    _BROWSER_THREAD.submit(opened.__exit__, None, None, None).result()


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory, browser: "Browser") -> Iterator[Shop]:
    server = Server(tmp_path_factory.mktemp("shop") / "data", app=SCENE, environ=SMALL)
    with ending(server), Client(server.url) as client:
        yield Shop(server, client)
