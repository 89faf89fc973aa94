"""`make screenshots`: every page of a small shop, light and dark, wide and narrow, into build/screenshots."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.client import Client
from tests.browser.chromium import NARROW, WIDE, Scheme, open_browser, open_page
from tests.browser.scene import SCENE, Seeded
from tests.system.harness import ROOT, Server, ending, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OF_GUIDE = (1100, 760)
SMALL = {"PENSTOCK_FLEET_MAX": "4", "PENSTOCK_FLEET_CAPACITY": "2", "PENSTOCK_WORKER_EXECUTORS": "1"}


def addresses(seeded: Seeded) -> Iterator[tuple[str, str]]:
    """The name of each picture, and the address of its page."""
    yield from (
        ("overview", "?last=5m"),
        ("jobs", "jobs"),
        ("jobs-failed", "jobs?q=state:failed"),
        ("job-succeeded", f"jobs/{seeded.report}"),
        ("job-failed", f"jobs/{seeded.failed}"),
        ("job-waiting", f"jobs/{seeded.paused}"),
        ("job-running", f"jobs/{seeded.running}"),
        ("queues", "queues"),
        ("queue", "queues/thumbnail?last=5m"),
        ("types", "types"),
        ("type", "types/thumbnail?last=5m"),
        ("new", "new?type=thumbnail"),
        ("schedules", "schedules"),
        ("schedule", "schedules/nightly-report"),
        ("fleets", "fleets"),
        ("fleet", "fleets/default?last=5m"),
        ("workers", "workers"),
        ("shards", "shards"),
        ("subscriptions", "subscriptions"),
    )


def send_bursts(client: Client, bursts: int) -> None:
    """Bursts of different sizes, each waited for: something for the picture to show."""
    for number in range(bursts):
        size = (40, 12, 90, 25)[number % 4]
        params = [{"url": f"https://example.com/dog-{one}.png", "seconds": 0.9} for one in range(size)]
        jobs = [client.submit("thumbnail", one).id for one in params]
        for job in jobs:
            client.wait(job, timeout=120)
        eventually("idle workers go", lambda: (client.get_fleet("default").desired or 0) <= 1)


def watch_bursts(browser: "Browser", url: str, client: Client, seeded: Seeded, bursts: int, folder: Path) -> None:
    """The pictures of the guide, as they look to somebody who had the overview open all the time."""
    with open_page(browser, url, size=OF_GUIDE) as (page, _):
        page.goto("?last=5m")
        send_bursts(client, bursts)
        page.get_by_role("button", name="started").last.click()
        page.screenshot(path=folder / "page-overview.png")
    with open_page(browser, url, size=OF_GUIDE, scheme="dark") as (page, _):
        page.goto(f"jobs/{seeded.report}")
        page.get_by_role("region", name="Log").wait_for()
        page.screenshot(path=folder / "page-job.png")
    with open_page(browser, url, size=NARROW) as (page, _):
        page.goto("jobs")
        page.get_by_role("checkbox").first.wait_for()
        page.screenshot(path=folder / "page-phone.png")


def take_all(folder: Path, only: str, bursts: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place) / "data", app=SCENE, environ=SMALL)
        with ending(server), Client(server.url) as client, open_browser() as browser:
            seeded = Seeded(client)
            if bursts:
                watch_bursts(browser, server.url, client, seeded, bursts, folder)
            schemes: tuple[Scheme, ...] = ("light", "dark")
            for scheme in schemes:
                for width, size in (("wide", WIDE), ("narrow", NARROW)):
                    with open_page(browser, server.url, scheme=scheme, size=size) as (page, _):
                        for name, address in addresses(seeded):
                            if only not in name:
                                continue
                            page.goto(address)
                            page.get_by_role("heading", level=1).wait_for()
                            page.get_by_role("button", name="live", exact=True).wait_for()
                            page.wait_for_load_state("load")
                            page.locator(".skeleton").first.wait_for(state="detached")
                            file = folder / f"{name}-{scheme}-{width}.png"
                            page.screenshot(path=file, full_page=True)
                            sys.stdout.write(f"{file}\n")


def copy_to_docs(folder: Path) -> None:
    """Those that the guide shows."""
    for path in folder.glob("page-*.png"):
        shutil.copy(path, ROOT / "docs" / "guides")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take pictures of every page.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "screenshots")
    parser.add_argument("--only", default="", help="only pages whose name has this in it")
    parser.add_argument("--bursts", type=int, default=0, help="bursts of jobs first, some twenty seconds each")
    parser.add_argument("--docs", action="store_true", help="copy those that the guide shows to where it shows them")
    given = parser.parse_args()
    take_all(given.folder, given.only, given.bursts)
    if given.docs:
        copy_to_docs(given.folder)
