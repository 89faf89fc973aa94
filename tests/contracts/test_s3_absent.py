"""A process whose object store is away when it starts: it works, says so, and refuses only what needs objects."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec import Raw

from penstock.config import LimitSettings, ObjectSettings, ServerSettings, Settings
from penstock.model.clock import SystemClock
from penstock.model.errors import ObjectsUnavailable
from penstock.model.wire.jobs import SubmitRequest
from penstock.objects.s3 import S3Objects
from penstock.objects.s3.bucket import Bucket
from penstock.runtime import open_engine
from servers import FaultProxy
from servers.proxy import Fault
from servers.seaweed import ACCESS_KEY, SECRET_KEY
from tests.s3 import REGION, access, new_url, paths_in, seaweed


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with FaultProxy(seaweed().port) as proxy:
        proxy.fault = Fault.REFUSING
        yield proxy


async def body() -> AsyncIterator[bytes]:
    yield b"content"


def settings(data: Path, proxy: FaultProxy) -> Settings:
    place = ObjectSettings(url=new_url(), endpoint=f"http://127.0.0.1:{proxy.port}", region=REGION)
    return Settings(
        server=ServerSettings(data=str(data), allow_unknown_types=True),
        objects=place,
        limits=LimitSettings(inline_bytes=100),
    )


async def test_only_what_needs_objects_is_refused_until_the_store_is_back(
    tmp_path: Path, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = (SubmitRequest(type="mail", params=Raw(b'{"text":"%s"}' % (b"x" * size))) for size in (1, 1000))
    async with open_engine(settings(tmp_path, proxy)) as engine:
        assert "starting without it" in caplog.text
        kept, refused = await engine.jobs.submit([small, large])
        assert (isinstance(kept, Exception), isinstance(refused, ObjectsUnavailable)) == (False, True)
        with pytest.raises(ObjectsUnavailable):
            await engine.files.upload(body(), "text/plain")
        proxy.fault = Fault.NONE
        assert (await engine.files.upload(body(), "text/plain")).size == 7
        assert not isinstance((await engine.jobs.submit([large]))[0], Exception)


async def test_a_store_that_ignores_conditions_is_found_out_once_it_is_back(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def heedless(bucket: Bucket, path: str, content: bytes) -> None:
        await bucket.replace(path, content)

    url = new_url()
    objects = await S3Objects.open(url, SystemClock(), access(f"http://127.0.0.1:{proxy.port}"))
    proxy.fault = Fault.NONE
    monkeypatch.setattr(Bucket, "create", heedless)
    with pytest.raises(ObjectsUnavailable, match="If-None-Match"):
        await objects.put("a", body(), "text/plain")
    assert not [path for path in await paths_in(url) if path.endswith(".object")]
