"""Whatever a user could write is text on every page: no script of it runs, nothing is asked for, nothing is hidden."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.browser.chromium import expect, open_page
from tests.system.harness import Server, ending

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

VECTORS = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    '"><svg onload=window.hit=1>',
    "javascript:window.hit=1",
    "data:text/html,<script>window.hit=1</script>",
    "</textarea><script>window.hit=1</script>",
    "{{constructor.constructor('window.hit=1')()}}",
    "${window.hit=1}",
    "\u202egnp.exe",
    "__proto__",
    "https://evil.example/<img src=x>",
)
WORD = "x" * 200_000
EVERYTHING = " ".join(VECTORS)
NAMES = ("__proto__"[2:], "constructor", "toString")
"""A name of a queue or a type has only letters, digits and `._:-`: these are the worst of them."""


class HostileServer:
    """A server without workers; the test is its worker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx2.Client(base_url=url, timeout=30)
        self.jobs: list[str] = []
        self._join()
        self._submit()

    def _post(self, path: str, body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def _join(self) -> None:
        types = [
            {
                "name": name,
                "queue": name,
                "description": EVERYTHING,
                "params_schema": {
                    "type": "object",
                    "properties": {vector: {"type": "string", "description": vector} for vector in VECTORS},
                },
            }
            for name in NAMES
        ]
        worker = {
            "id": "constructor",
            "host": EVERYTHING[:200],
            "pid": 1,
            "version": "<script>window.hit=1</script>",
            "app": EVERYTHING[:200],
            "types": list(NAMES),
            "capacity": 50,
            "started_at": "2026-01-01T00:00:00Z",
        }
        self._post("/v1/workers", {"worker": worker, "types": types})

    def _submit(self) -> None:
        params = {vector: vector for vector in VECTORS}
        upload = self.http.post("/v1/uploads", content=b"x", headers={"content-type": "text/x-html"}).json()["id"]
        inputs = {vector.replace("/", "_"): upload for vector in VECTORS[:3]}
        for name in NAMES:
            body = {"type": name, "params": params, "tags": list(VECTORS), "inputs": inputs}
            self.jobs.append(self._post("/v1/jobs", body)["id"])
        self.jobs.append(self._post("/v1/jobs", {"type": NAMES[0], "params": {"word": WORD}})["id"])
        claims = self._post("/v1/workers/constructor/claim", {"types": list(NAMES), "limit": 10, "wait_seconds": 5})
        first, second, *_ = claims["claims"]
        self._log(first)
        self._settle(
            first,
            error={
                "code": "raised",
                "message": EVERYTHING,
                "error_class": EVERYTHING,
                "traceback": EVERYTHING,
                "retryable": False,
            },
        )
        self._log(second)
        self._settle(second, result=params)
        self.http.post(
            "/v1/schedules",
            json={"name": "toString", "type": NAMES[0], "cron": "0 2 * * *", "params": params, "tags": list(VECTORS)},
        ).raise_for_status()

    def _log(self, claimed: Any) -> None:
        lines = [
            {"at": "2026-01-01T00:00:00Z", "stream": "stdout", "text": f"\x1b[31m{vector}\x1b]0;title\x07"}
            for vector in VECTORS
        ]
        entry = {"job": claimed["job"], "fence": claimed["fence"], "lines": lines}
        self._post("/v1/workers/constructor/log", {"entries": [entry]})

    def _settle(self, claimed: Any, **outcome: Any) -> None:
        told = {"job": claimed["job"], "fence": claimed["fence"], **outcome}
        answer = self._post("/v1/workers/constructor/settle", {"outcomes": [told]})
        assert answer == {"refused": []}

    def addresses(self) -> Iterator[str]:
        """Every page that shows something of it, and addresses that are hostile themselves."""
        yield from ("", "jobs", "queues", "types", "schedules", "fleets", "workers", "shards", "subscriptions")
        yield from (f"jobs/{job}" for job in self.jobs)
        for name in NAMES:
            yield from (f"queues/{name}", f"types/{name}", f"new?type={name}")
        yield "schedules/toString"
        vector = "%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E"
        yield from (
            f"jobs?q={vector}",
            f"jobs?q=tag:%22{vector}%22",
            f"jobs/{vector}",
            f"queues/{vector}",
            f"types/{vector}",
        )
        yield from (
            f"new?type={vector}",
            f"fleets/{vector}?at={vector}&last={vector}",
            f"{vector}/{vector}",
            "%E0%A4%A/%FF",
        )
        yield from (f"schedules/{vector}", "jobs?q=__proto__:1", f"new?type={NAMES[0]}&like={self.jobs[0]}")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, browser: "Browser") -> Iterator[HostileServer]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    server = Server(folder / "data", "--no-workers", app=None)
    with ending(server):
        scene = HostileServer(server.url)
        yield scene
        scene.http.close()


def test_nothing_that_a_user_wrote_runs_or_is_asked_for(browser: "Browser", hostile: HostileServer) -> None:
    with open_page(browser, hostile.url) as (page, watch):
        watch.expected = ("Failed to load resource: the server responded with a status of 4",)
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error('CSP', event.blockedURI))"
        )
        for address in hostile.addresses():
            page.goto(address)
            page.get_by_role("heading", level=1).wait_for()
            page.locator(".skeleton").first.wait_for(state="detached")
            assert page.evaluate("window.hit") is None, address
            assert page.evaluate("document.querySelectorAll('main img, main script, main iframe').length") == 0, address
            assert watch.faults == [], address


def test_what_would_hide_or_turn_text_around_is_marked(browser: "Browser", hostile: HostileServer) -> None:
    with open_page(browser, hostile.url) as (page, _):
        page.goto(f"jobs/{hostile.jobs[0]}")
        params = page.get_by_role("region", name="params")
        expect(params).to_contain_text("U+202Egnp.exe")
        assert params.locator(".odd").count() == 2
        log = page.get_by_role("region", name="Log lines")
        expect(log).to_contain_text("<script>window.hit=1</script>")
        assert "\x1b" not in log.inner_text()


def test_a_very_long_word_is_shown_in_part_and_breaks_nothing(browser: "Browser", hostile: HostileServer) -> None:
    with open_page(browser, hostile.url) as (page, _):
        page.goto(f"jobs/{hostile.jobs[3]}")
        params = page.get_by_role("region", name="params")
        expect(params).to_contain_text("xxx")
        assert len(params.inner_text()) <= 70_000
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("button", name="Show more of 200 kB").click()
        expect(page.get_by_role("button", name="Show more")).to_have_count(0)
        assert json.loads(params.inner_text()) == {"word": WORD}


def test_a_page_of_another_site_gets_nothing_from_here(browser: "Browser", hostile: HostileServer) -> None:
    with open_page(browser, "http://evil.example") as (page, watch):
        watch.expected = ("",)
        page.route(
            "http://evil.example/**", lambda route: route.fulfill(body="<title>evil</title>", content_type="text/html")
        )
        page.goto("http://evil.example/")
        read = "async (url) => { try { return (await fetch(url, {mode: 'cors'})).status } catch { return 'refused' } }"
        assert page.evaluate(read, f"{hostile.url}/v1/jobs") == "refused"
        framed = """(url) => new Promise((done) => {
            const frame = document.createElement('iframe');
            frame.src = url;
            frame.onload = () => { try { done(frame.contentDocument.title) } catch { done('refused') } };
            document.body.append(frame);
        })"""
        assert page.evaluate(framed, f"{hostile.url}/ui/") == "refused"
        streamed = """(url) => new Promise((done) => {
            const source = new EventSource(url);
            source.onopen = () => done('open');
            source.onerror = () => { source.close(); done('refused') };
        })"""
        assert page.evaluate(streamed, f"{hostile.url}/v1/live") == "refused"
        posted = "(url) => fetch(url, {method: 'POST', mode: 'no-cors'}).then(() => 'sent', () => 'refused')"
        page.evaluate(posted, f"{hostile.url}/v1/queues/constructor/pause")
        watch.faults.clear()
    queue = hostile.http.get("/v1/queues/constructor").json()
    assert queue["paused"] is False
