"""What somebody does with the page: look, find, ask why, and do something about it."""

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import expect, open_page
from tests.browser.conftest import Shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.slow


def confirm(page: "Page", verb: str) -> None:
    """Press the button of the dialog that asks first."""
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".command code")).to_contain_text("penstock ")
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog).to_be_hidden()


def test_the_overview_shows_what_waits_and_why_workers_were_started(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        page.goto("")
        expect(page.get_by_role("button", name="live", exact=True)).to_be_visible()
        expect(page.get_by_role("region", name="Waiting jobs above, workers below")).to_contain_text("jobs came")
        page.get_by_role("button", name=re.compile("started")).first.click()
        expect(page).to_have_url(re.compile(r"at=2\d{3}-"))
        expect(page.locator(".decisions")).to_contain_text("due or soon to be")
        page.get_by_text("Show as table").click()
        expect(page.get_by_role("columnheader", name="waiting", exact=True)).to_be_visible()
        page.get_by_role("link", name="15 min").click()
        expect(page).to_have_url(re.compile("last=15m"))


def test_a_failed_job_tells_its_attempts_and_is_retried(browser: "Browser", shop: Shop) -> None:
    failed = shop.client.get(shop.seeded.failed)
    with open_page(browser, shop.url) as (page, _):
        page.goto("jobs")
        page.get_by_role("link", name=re.compile("^failed")).click()
        row = page.get_by_role("row", name=re.compile("FileNotFoundError"))
        row.first.get_by_role("rowheader").get_by_role("link").click()
        page.get_by_role("heading", name="thumbnail").wait_for()
        expect(page.get_by_text("attempt 3 ended: failed")).to_be_visible()
        expect(page.get_by_text("attempt 1 errored, to be tried again")).to_be_visible()
        expect(page.get_by_role("region", name="traceback")).to_contain_text("raise FileNotFoundError")
        expect(page.get_by_role("region", name="Log lines")).to_contain_text("fetch https://example.com/missing.png")
        page.get_by_role("button", name="Retry…").click()
        confirm(page, "Retry them")
        expect(page.get_by_role("status").filter(has_text="1 retried")).to_be_visible()
    again = [job for job in shop.client.list(type="thumbnail") if job.retry_of == failed.id]
    assert len(again) == 1


def test_numbers_are_shown_as_they_were_sent_and_files_can_be_had(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        page.goto(f"jobs/{shop.seeded.report}")
        expect(page.get_by_role("region", name="result")).to_contain_text('"exact": 9007199254740993')
        with page.expect_download() as download:
            page.get_by_role("link", name="report.csv").click()
        assert download.value.suggested_filename == "report.csv"


def test_a_job_that_waits_says_why_and_what_would_help(browser: "Browser", shop: Shop) -> None:
    waiting = shop.client.submit("mail", {"to": "patient@example.com"}).id
    with open_page(browser, shop.url) as (page, _):
        page.goto(f"jobs/{waiting}")
        expect(page.locator(".why")).to_contain_text("queue paused")
        page.locator(".why").get_by_role("button", name="Resume").click()
        confirm(page, "Resume")
        expect(page.locator(".mark")).to_have_text("succeeded")
        page.goto("queues")
        page.get_by_role("button", name="Pause mail").click()
        confirm(page, "Pause")
        expect(page.get_by_role("row", name=re.compile("^mail paused"))).to_be_visible()


def test_a_job_is_submitted_from_a_form_made_of_its_signature(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, watch):
        watch.expected = ("422",)
        page.goto("new?type=report")
        page.get_by_label("rows").fill("three")
        page.get_by_label("month").fill("2026-09")
        page.get_by_role("button", name="Submit").click()
        expect(page.get_by_role("alert")).to_contain_text("not JSON")
        page.get_by_label("rows").fill("7")
        expect(page.locator(".command code")).to_have_text(
            """penstock jobs submit report '{"month": "2026-09", "rows": 7}'"""
        )
        page.get_by_role("button", name="Submit").click()
        expect(page.locator(".mark")).to_have_text("succeeded")
        expect(page.get_by_role("region", name="result")).to_contain_text('"rows": 7')


def test_a_running_job_is_followed_and_cancelled(browser: "Browser", shop: Shop) -> None:
    job = shop.client.submit("encode", {"film": "metropolis.mkv"}).id
    with open_page(browser, shop.url) as (page, _):
        page.goto(f"jobs/{job}")
        expect(page.locator(".mark")).to_have_text("running")
        expect(page.get_by_role("progressbar")).to_be_visible()
        page.get_by_role("button", name="Cancel…").click()
        confirm(page, "Cancel them")
        expect(page.locator(".mark")).to_have_text("cancelled")


def test_a_schedule_is_looked_at_and_triggered(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        page.goto("schedules")
        page.get_by_role("link", name="nightly-report").click()
        expect(page.get_by_role("list").filter(has_text="02:30:00").get_by_role("listitem")).to_have_count(10)
        page.get_by_role("button", name="Trigger").click()
        confirm(page, "Run it")
        expect(page.get_by_role("link", name="nightly-report")).to_be_visible()
        expect(page).to_have_url(re.compile("/ui/jobs/"))


def test_a_fleet_is_bounded_and_scaled(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        page.goto("fleets/encode")
        page.get_by_text("Change it").click()
        page.get_by_label("At most").fill("4")
        page.get_by_role("button", name="Change bounds…").click()
        confirm(page, "Change")
        expect(page.locator(".figures")).to_contain_text("0–4")
    assert shop.client.get_fleet("encode").fleet.max == 4


def test_of_workers_nothing_is_said_where_nothing_is_known(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        page.goto("types/thumbnail")
        picture = page.get_by_role("region", name="Its jobs")
        expect(picture).to_contain_text("jobs came")
        assert "wanted" not in picture.inner_text()


def test_new_jobs_gather_while_somebody_reads(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        page.goto("jobs?q=type:report")
        first = page.get_by_role("rowheader").first
        first.get_by_role("link").focus()
        before = first.inner_text()
        jobs = [shop.client.submit("report", {"month": "2026-08"}).id for _ in range(3)]
        page.get_by_role("button", name="3 new").wait_for()
        assert first.inner_text() == before
        page.get_by_role("button", name="3 new").click()
        expect(first.get_by_role("link")).to_have_attribute("title", jobs[-1])


def test_several_jobs_are_chosen_and_retried_by_keyboard_alone(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        page.goto("")
        page.get_by_role("heading", name="Overview").wait_for()
        page.keyboard.press("g")
        page.keyboard.press("j")
        page.get_by_role("heading", name="Jobs").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("type:report state:succeeded")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("report"))
        expect(page.get_by_role("row").nth(1)).to_contain_text("succeeded")
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(page.get_by_role("group", name="Selected jobs")).to_contain_text("1 selected")
        page.keyboard.press("r")
        expect(page.get_by_role("dialog")).to_contain_text("Retry 1 job?")
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox")).to_be_focused()
        page.keyboard.type(shop.seeded.failed)
        page.keyboard.press("Enter")
        expect(page.locator(".mark")).to_have_text("failed")


def test_a_filter_that_cannot_be_is_told_with_its_place(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, watch):
        watch.expected = ("404",)
        page.goto("jobs?q=state:failed%20colour:red")
        expect(page.get_by_role("alert")).to_contain_text("“colour:red” at character 14 is no term")
        page.goto("jobs/0190a6e2-0000-7000-8000-000000000000")
        expect(page.get_by_text("There is no such thing")).to_be_visible()
        page.goto("nowhere/at/all")
        expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()


def test_the_page_works_below_a_prefix_and_without_streams(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, "http://proxy.example") as (page, watch):
        watch.expected = ("Failed to load resource", "Cross-Origin-Opener-Policy header has been ignored")

        def pass_on(route: "Route") -> None:
            url = route.request.url.replace("http://proxy.example/team/jobs", shop.url)
            if url.endswith("/v1/live"):
                route.abort()
            else:
                route.fulfill(response=route.fetch(url=url))

        page.route("http://proxy.example/team/jobs/**", pass_on)
        page.goto(f"http://proxy.example/team/jobs/ui/jobs/{shop.seeded.failed}")
        expect(page.locator(".mark")).to_have_text("failed")
        expect(page.get_by_role("button", name="polling")).to_be_visible()
        page.get_by_role("link", name="Queues").click()
        expect(page).to_have_url("http://proxy.example/team/jobs/ui/queues")
        expect(page.get_by_role("link", name="thumbnail", exact=True)).to_be_visible()
