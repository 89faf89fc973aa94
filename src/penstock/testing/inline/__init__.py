"""Inline mode, for the tests of your own application: submitting a job runs it, here and now, without a server.

    from penstock.testing import inline

    def test_a_thumbnail_is_small():
        with inline.run(app) as jobs:
            job = thumbnail.submit("cat.png", width=64)
            assert job.wait().result == "64.png"
            assert jobs.of("thumbnail")[0].attempt == 1

or as a pytest fixture:

    @pytest.fixture
    def jobs():
        with inline.run(app) as jobs:
            yield jobs

Schedules do not tick by themselves: `jobs.tick("nightly")` runs one tick of a schedule that the app declares.

Everything passes through what a real job passes through: arguments are checked and become JSON and come back, results
too; inputs are files and outputs are kept only by an attempt that succeeded; retries, idempotency keys and errors go by
the same rules. What differs: nothing waits (a delay or a retry comes at once), timeouts are not enforced, `isolated`
jobs share this process, commands are refused, and of a job's log only `logging` records are kept (your test runner has
the rest). A coroutine handler runs on an event loop of its own.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.app import Penstock
from penstock.client import AsyncClient, Client
from penstock.model.clock import Clock, SystemClock
from penstock.testing.inline.jobs import AsyncInline, InlineJobs

__all__ = ["InlineJobs", "run"]


@contextmanager
def run(app: Penstock, clock: Clock | None = None) -> Iterator[InlineJobs]:
    """Jobs of this app run inline until the block ends; its real clients are back afterwards."""
    clients = app.client, app.async_client
    with tempfile.TemporaryDirectory(prefix="penstock-inline-") as folder:
        jobs = InlineJobs(app, Path(folder), clock or SystemClock())
        app.client, app.async_client = Client(transport=jobs), AsyncClient(transport=AsyncInline(jobs))
        try:
            yield jobs
        finally:
            app.client, app.async_client = clients
