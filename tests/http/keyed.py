"""A server that needs API keys, and clients that show one."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import httpx2
import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp

from penstock.engine import Engine
from penstock.model.keys import KeyId, KeyScope
from penstock.model.notices import NoticeKind
from penstock.model.wire.keys import KeyRequest, MadeKey
from tests.http.desk import Client

FOREIGN = "pk_abcdefgh_" + "A" * 43
"""Written like a key, and known to no server."""


async def made(engine: Engine, *scopes: KeyScope, queues: Iterable[str] | None = None) -> MadeKey:
    """A key with these scopes alone."""
    limit = None if queues is None else tuple(queues)
    return await engine.keys.create(KeyRequest(name="test", scopes=scopes, queues=limit))


async def expired(engine: Engine, *scopes: KeyScope) -> MadeKey:
    """A key that was good until long ago."""
    one = await made(engine, *scopes)
    (kept,) = [key for key in await engine.keys.list() if key.id == one.id]
    past = replace(kept, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    await engine.catalog.put_notices(NoticeKind.KEY, {one.id: msgspec.json.encode(past)})
    return one


async def revoked(engine: Engine, *scopes: KeyScope) -> MadeKey:
    one = await made(engine, *scopes)
    await engine.keys.revoke(KeyId(one.id))
    return one


@contextmanager
def showing(client: Client, key: str | None) -> Iterator[Client]:
    """The client with this key, and with its own again afterwards."""
    before = client.headers.pop("authorization", None)
    if key is not None:
        client.headers["authorization"] = f"Bearer {key}"
    try:
        yield client
    finally:
        client.headers.pop("authorization", None)
        if before is not None:
            client.headers["authorization"] = before


def client_of(app: ASGIApp) -> Client:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost")
