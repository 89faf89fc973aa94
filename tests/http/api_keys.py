"""API keys for tests, and clients that send them."""

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
from tests.http.api_calls import Client

FOREIGN = "pk_abcdefgh_" + "A" * 43
"""Written like a key, and known to no server."""


async def create_key(engine: Engine, *scopes: KeyScope, queues: Iterable[str] | None = None) -> MadeKey:
    """Create a key with these scopes alone."""
    limit = None if queues is None else tuple(queues)
    return await engine.keys.create(KeyRequest(name="test", scopes=scopes, queues=limit))


async def create_expired_key(engine: Engine, *scopes: KeyScope) -> MadeKey:
    """Create a key that has expired."""
    one = await create_key(engine, *scopes)
    (kept,) = [key for key in await engine.keys.list() if key.id == one.id]
    past = replace(kept, expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    await engine.catalog.put_notices(NoticeKind.KEY, {one.id: msgspec.json.encode(past)})
    return one


async def create_revoked_key(engine: Engine, *scopes: KeyScope) -> MadeKey:
    one = await create_key(engine, *scopes)
    await engine.keys.revoke(KeyId(one.id))
    return one


@contextmanager
def with_key(client: Client, key: str | None) -> Iterator[Client]:
    """Let the client send this key in the body; afterwards it sends its own again."""
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
