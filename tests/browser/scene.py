"""A small shop with something to see on every page: jobs in every state."""

from datetime import timedelta

from penstock.client import Client
from penstock.model.lifecycle import State

SCENE = "tests.browser.handlers:app"


class Seeded:
    """Jobs to look at, by what became of them."""

    def __init__(self, client: Client) -> None:
        pictures = [
            client.submit(
                "thumbnail", {"url": f"https://example.com/cat-{number}.png", "width": 64 * (number % 4 + 1)}
            ).id
            for number in range(30)
        ]
        self.failed = client.submit("thumbnail", {"url": "https://example.com/missing.png"}, tags=("customer-42",)).id
        self.report = client.submit("report", {"month": "2026-10", "rows": 12}, tags=("monthly",)).id
        client.pause("mail")
        self.paused = client.submit("mail", {"to": "someone@example.com"}).id
        self.later = client.submit("mail", {"to": "later@example.com"}, delay=timedelta(hours=2)).id
        self.cancelled = client.submit("mail", {"to": "nobody@example.com"}).id
        client.cancel(self.cancelled)
        self.running = client.submit("encode", {"film": "the-third-man.mkv"}).id
        self.succeeded = pictures[0]
        for job in (*pictures, self.failed, self.report):
            client.wait(job)
        assert client.get(self.failed).state is State.FAILED
