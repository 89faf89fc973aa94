"""Everybody can use every page: axe finds nothing, nothing is wider than a phone, and text may be twice as large."""

from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import NARROW, WIDE, Scheme, Size, expect, open_page
from tests.browser.conftest import Shop, axe_source
from tests.browser.screenshots import addresses

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

RUN = """async (rules) => {
    const about = (node) => node.html.slice(0, 160) + ' ' + node.failureSummary;
    const options = rules ? {runOnly: rules, resultTypes: ['violations']} : {resultTypes: ['violations']};
    const found = await axe.run(document, options);
    return found.violations.map((one) => one.id + ': ' + one.nodes.slice(0, 3).map(about).join(' | '));
}"""
OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""What another scheme of colours can change."""
FITS = "document.documentElement.scrollWidth <= innerWidth"


TURN = """async (address) => {
    history.pushState(null, '', address);
    dispatchEvent(new PopStateEvent('popstate'));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""


def look_at(page: "Page", address: str) -> None:
    """Load a page; from then on, turn to others without loading anew."""
    if page.url == "about:blank":
        page.goto(address)
        page.evaluate(axe_source())
    else:
        page.evaluate(TURN, address)
    page.get_by_role("heading", level=1).wait_for()
    page.locator(".skeleton").first.wait_for(state="detached")


@pytest.mark.parametrize(
    ("scheme", "size", "rules"),
    [("light", WIDE, None), ("dark", WIDE, OF_COLOURS), ("light", NARROW, None)],
    ids=["light", "dark", "narrow"],
)
def test_axe_finds_nothing_on_any_page(
    browser: "Browser", shop: Shop, scheme: Scheme, size: Size, rules: list[str] | None
) -> None:
    found: dict[str, list[str]] = {}
    with open_page(browser, shop.url, scheme=scheme, size=size) as (page, _):
        for name, address in addresses(shop.seeded):
            look_at(page, address)
            found[name] = page.evaluate(RUN, rules)
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_axe_finds_nothing_in_dialogs_and_what_is_empty_or_refused(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, watch):
        watch.expected = ("404",)
        for address in ("jobs?q=tag:nobody", "jobs?q=nonsense", "jobs/0190a6e2-0000-7000-8000-000000000000", "nowhere"):
            look_at(page, address)
            assert page.evaluate(RUN) == []
        for keys in (["?"], ["Control+k"]):
            look_at(page, "queues")
            page.get_by_role("link", name="thumbnail", exact=True).wait_for()
            for key in keys:
                page.keyboard.press(key)
            page.get_by_role("dialog").wait_for()
            assert page.evaluate(RUN) == []
            page.keyboard.press("Escape")
        look_at(page, "queues")
        page.get_by_role("button", name="Pause thumbnail").click()
        assert page.evaluate(RUN) == []


def test_no_page_is_wider_than_the_smallest_phone(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url, size=(320, 640)) as (page, _):
        for name, address in addresses(shop.seeded):
            look_at(page, address)
            assert page.evaluate(FITS), name
        page.get_by_role("button", name="Menu").click()
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        assert page.evaluate(FITS)


def test_following_can_be_stopped_and_begun_again(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        look_at(page, "")
        expect(page.get_by_role("button", name="live", exact=True)).to_be_visible()
        page.keyboard.press("p")
        expect(page.get_by_role("button", name="not following")).to_be_visible()
        page.keyboard.press("p")
        expect(page.get_by_role("button", name="live", exact=True)).to_be_visible()


def test_preferences_are_kept_and_single_keys_can_be_switched_off(browser: "Browser", shop: Shop) -> None:
    with open_page(browser, shop.url) as (page, _):
        look_at(page, "")
        page.keyboard.press("t")
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.get_by_label("Preferences").click()
        page.get_by_role("button", name="Single keys: on").click()
        page.get_by_role("heading", level=1).click()
        page.keyboard.press("t")
        page.reload()
        page.get_by_role("heading", level=1).wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
