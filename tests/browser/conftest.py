"""One browser for all tests, and the servers that its pages look at."""

import os
from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    with open_browser() as browser:
        expect.set_options(timeout=20_000)
        yield browser


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory, browser: "Browser") -> Iterator[Shop]:
    server = Server(tmp_path_factory.mktemp("shop") / "data", app=SCENE, environ=SMALL)
    with ending(server), Client(server.url) as client:
        yield Shop(server, client)
