"""An S3 server for tests, started with the first that needs it, and objects in it that tests can make older."""

import atexit
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from obstore.store import S3Store

from penstock.model.clock import SystemClock
from penstock.model.job import ObjectLink
from penstock.objects.s3 import Access, S3Objects
from servers import Missing, Seaweed
from servers.seaweed import ACCESS_KEY, SECRET_KEY

BUCKET = "penstock-test"
REGION = "us-east-1"
DEADLINE = timedelta(seconds=30)


@cache
def seaweed() -> Seaweed:
    """The one server of this test process. Missing: a failure under CI, else the test is skipped."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-seaweed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        server = Seaweed(folder).start()
    except Missing as missing:
        if "CI" in os.environ:
            raise
        pytest.skip(str(missing))
    atexit.register(server.stop)
    return server


def access(endpoint: str | None = None, secret: str = SECRET_KEY) -> Access:
    return Access(endpoint=endpoint or seaweed().endpoint, region=REGION, access_key=ACCESS_KEY, secret_key=secret)


def new_url() -> str:
    """A prefix that no other test uses."""
    return f"s3://{BUCKET}/{secrets.token_hex(8)}/objects"


def behind(url: str) -> S3Store:
    """What lies below a prefix, as anyone with the keys may see and change it."""
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    return S3Store(
        BUCKET,
        prefix=prefix,
        endpoint=seaweed().endpoint,
        region=REGION,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        client_options={"allow_http": True},
    )


async def paths_in(url: str) -> list[str]:
    return sorted([found["path"] async for page in behind(url).list() for found in page])


class AgedObjects(S3Objects):
    """What tests make older looks older: a server's time cannot be moved. It tells times in whole seconds."""

    def __init__(self, url: str) -> None:
        super().__init__(url, SystemClock(), access(), DEADLINE)
        self._aged: list[tuple[datetime, timedelta]] = []

    def age(self, span: timedelta) -> None:
        """Everything there is this much older from now on."""
        self._aged.append((datetime.fromtimestamp(math.floor(_now()) + 1, UTC), span))

    async def put(
        self, key: str, body: AsyncIterator[bytes], content_type: str, digest: str | None = None
    ) -> ObjectLink:
        await self._told_apart()
        return await super().put(key, body, content_type, digest)

    async def copy(self, source: str, target: str) -> ObjectLink:
        await self._told_apart()
        return await super().copy(source, target)

    async def _told_apart(self) -> None:
        """What is written now must have a later second than what was aged."""
        latest = max((at for at, _ in self._aged), default=SystemClock().now())
        await SystemClock().sleep(max(timedelta(0), latest - SystemClock().now()))

    async def _ages(self, prefix: str) -> AsyncIterator[tuple[str, datetime]]:
        async for key, newest in super()._ages(prefix):
            yield key, newest - sum((span for at, span in self._aged if newest < at), timedelta())


def _now() -> float:
    return SystemClock().now().timestamp()
