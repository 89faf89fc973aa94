"""Debian's chromium under playwright, and a watch over everything that a page must never do."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import pytest

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:  # `open_browser` says so.
    expect = sync_playwright = None  # type: ignore[assignment, unused-ignore]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

__all__ = ["NARROW", "WIDE", "Scheme", "Size", "Watch", "expect", "open_browser", "open_page"]

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
Size = tuple[int, int]
Scheme = Literal["light", "dark"]
WIDE: Size = (1440, 900)
NARROW: Size = (390, 844)
MISSING = "chromium and playwright are needed: make servers browser"


@contextmanager
def open_browser() -> Iterator["Browser"]:
    """A browser without a window; skipped where there is none, except under CI."""
    program = shutil.which("chromium")
    if program is None or sync_playwright is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """What a page did that it must not: errors, dialogs, requests to elsewhere, reports of its content policy."""

    def __init__(self, context: "BrowserContext", origin: str) -> None:
        self._origin = origin
        self.faults: list[str] = []
        self.expected: tuple[str, ...] = ()
        context.on("console", self._note_message)
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        context.on("dialog", self._note_dialog)
        context.on("request", self._note_request)

    def _note_message(self, message: "ConsoleMessage") -> None:
        # Chromium reports what its content policy refuses as an error, too.
        if message.type in {"error", "warning"} and not any(word in message.text for word in self.expected):
            self.faults.append(f"{message.type}: {message.text}")

    def _note_dialog(self, dialog: "Dialog") -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: "Request") -> None:
        if not request.url.startswith((self._origin, "blob:", "data:")):
            self.faults.append(f"request: {request.url}")


@contextmanager
def open_page(
    browser: "Browser", origin: str, *, scheme: Scheme = "light", size: Size = WIDE
) -> Iterator[tuple["Page", Watch]]:
    """A page in a profile of its own; whatever it must not do fails at the end."""
    context = browser.new_context(
        base_url=f"{origin}/ui/",
        color_scheme=scheme,
        viewport={"width": size[0], "height": size[1]},
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(20_000)
    watch = Watch(context, origin)
    try:
        yield context.new_page(), watch
        assert watch.faults == [], watch.faults
    finally:
        context.close()
