"""A server that needs keys: signing in and out, looking only, and what the page hides."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from penstock.client import Client
from tests.browser.chromium import expect, open_page
from tests.system.harness import ROOT, Server, ending

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

ACTING = re.compile("pause|resume|cancel|retry|trigger|scale|change|new job|backfill|submit|drain", re.IGNORECASE)


class Guarded:
    """A server that needs keys, with an admin's, and one job."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self.admin = key
        with Client(url, key=key) as client:
            self.job = client.submit("add", {"a": 1}).id

    def create_key(self, *scopes: str) -> tuple[str, str]:
        """The id and the text of a new key."""
        headers = {"authorization": f"Bearer {self.admin}"}
        answer = httpx2.post(f"{self.url}/v1/keys", json={"name": "reader", "scopes": scopes}, headers=headers)
        made = answer.raise_for_status().json()
        return made["id"], made["key"]

    def revoke(self, id: str) -> None:
        headers = {"authorization": f"Bearer {self.admin}"}
        httpx2.delete(f"{self.url}/v1/keys/{id}", headers=headers).raise_for_status()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, browser: "Browser") -> Iterator[Guarded]:
    data: Path = tmp_path_factory.mktemp("guarded") / "data"
    words = ("keys", "create", "--name", "ops", "--scope", "admin", "--direct", "--data", str(data), "--json")
    told = subprocess.run([sys.executable, "-m", "penstock", *words], cwd=ROOT, capture_output=True, check=True)
    environ = {"PENSTOCK_SERVER_KEYS": "required"}
    server = Server(data, "--no-workers", "--allow-unknown-types", app=None, environ=environ)
    with ending(server):
        yield Guarded(server.url, json.loads(told.stdout)["key"])


def sign_in(page: "Page", key: str, *, only_look: bool = False) -> None:
    page.get_by_label("API key").fill(key)
    if only_look:
        page.get_by_label("Only look").check()
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="live", exact=True).wait_for()


def test_one_signs_in_where_one_was_and_the_key_is_kept_nowhere(browser: "Browser", guarded: Guarded) -> None:
    with open_page(browser, guarded.url) as (page, watch):
        watch.expected = ("401",)
        page.goto(f"jobs/{guarded.job}")
        page.get_by_label("API key").fill("pk_abcdefgh_" + "A" * 43)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
        sign_in(page, guarded.admin)
        expect(page.locator(".mark")).to_have_text("queued")
        assert guarded.admin not in page.evaluate("document.cookie + JSON.stringify({...localStorage})") + page.url
        (cookie,) = page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("penstock", True, "Strict")
        assert guarded.admin not in cookie["value"]
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel them").click()
        expect(page.locator(".mark")).to_have_text("cancelled")
        page.get_by_label("Preferences").click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        page.reload()
        expect(page.get_by_label("API key")).to_be_visible()


@pytest.mark.parametrize("only_look", [True, False], ids=["only look", "a key that may only look"])
def test_who_may_only_look_sees_everything_and_no_button_that_would_be_refused(
    browser: "Browser", guarded: Guarded, only_look: bool
) -> None:
    key = guarded.admin if only_look else guarded.create_key("jobs:read")[1]
    with open_page(browser, guarded.url) as (page, watch):
        watch.expected = ("401",)
        page.goto("")
        sign_in(page, key, only_look=only_look)
        pages = ("", "jobs", f"jobs/{guarded.job}", "queues", "queues/add", "types", "schedules", "fleets")
        for address in (*pages, "fleets/default", "workers", "shards"):
            page.goto(address)
            page.get_by_role("heading", level=1).wait_for()
            page.locator(".skeleton").first.wait_for(state="detached")
            names = [one.inner_text() for one in page.get_by_role("button").all()]
            names += [one.inner_text() for one in page.locator("a.button").all()]
            assert [name for name in names if ACTING.search(name)] == [], address
        refused = "(url) => fetch(url, {method: 'POST'}).then((answer) => answer.status)"
        watch.expected = ("401", "403")
        assert page.evaluate(refused, f"{guarded.url}/v1/queues/add/pause") == 403


def test_whoever_loses_the_key_is_signed_out(browser: "Browser", guarded: Guarded) -> None:
    id, key = guarded.create_key("jobs:read")
    with open_page(browser, guarded.url) as (page, watch):
        watch.expected = ("401",)
        page.goto("")
        sign_in(page, key)
        guarded.revoke(id)
        expect(page.get_by_label("API key")).to_be_visible()
