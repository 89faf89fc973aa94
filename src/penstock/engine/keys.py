"""API keys: creating, rotating and revoking them, and admitting requests.

Keys are notices, so every process knows them from its catalog: a revoked key is refused in this process at once, in
others within a second. While the store is unavailable, the keys last read count.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from penstock.engine.catalog import Catalog, CatalogReading
from penstock.model.clock import Clock, seconds
from penstock.model.errors import Forbidden, NotFound, Unauthorized
from penstock.model.ids import ShardId
from penstock.model.keys import (
    ApiKey,
    KeyId,
    KeyIdText,
    KeyScope,
    RandomBytes,
    check_terms,
    digest_of,
    new_id,
    new_secret,
    parse_token,
    proves,
    token_of,
)
from penstock.model.notices import Name, Notice, NoticeKind
from penstock.model.wire.keys import KeyRequest, MadeKey, RotateRequest, made_key

_read_key = lru_cache(maxsize=4096)(msgspec.json.Decoder(ApiKey).decode)

SHOW_ONE = "send the header `Authorization: Bearer pk_…` (the SDK, workers and the command line: set PENSTOCK_KEY)"
FIRST_ONE = (
    "The first one is made in the store itself, while no embedded server runs: `penstock keys create --direct …`"
)


SESSIONS_REMOVED = 50
"""Most expired sessions that one sign-in removes."""


class Keys:
    """The keys of this system. `required` says whether a request without one is refused."""

    def __init__(
        self, catalog: Catalog, clock: Clock, *, required: bool, random_bytes: RandomBytes = secrets.token_bytes
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._random_bytes = random_bytes
        self._read_from: Mapping[Name, Notice] | None = None
        self._known: dict[str, ApiKey] = {}
        self._lent: dict[str, ApiKey] = {}
        self.required = required

    async def admit(
        self, authorization: str | None, scopes: Collection[KeyScope], *, always: bool = False
    ) -> ApiKey | None:
        """The key of a request, if it has one of the scopes; None if the request has no key and needs none.

        With `always` a key is needed even if `required` is False. Raises Unauthorized, with the same message whatever
        is wrong with the key, or Forbidden with the scopes that it lacks.
        """
        shown = bearer(authorization)
        if shown is None:
            if self.required:
                raise Unauthorized(f"this needs an API key; {SHOW_ONE}")
            if always:
                raise Unauthorized(f"this needs an API key, also where nothing else does; {SHOW_ONE}. {FIRST_ONE}")
            return None
        key = await self._find_key(shown)
        if key is None:
            raise Unauthorized(f"this API key is unknown, expired or revoked; {SHOW_ONE}", shown=True)
        require(key, scopes)
        return key

    async def list(self) -> list[ApiKey]:
        """Every key that was not revoked, also expired ones; by name, then by age."""
        return sorted((await self._read_keys()).values(), key=lambda key: (key.name, key.created_at, key.id))

    async def has_admin(self) -> bool:
        """Whether there is a key that has the admin scope and has not expired."""
        now = self._clock.now()
        keys = (await self._read_keys()).values()
        lasting = (key for key in keys if key.parent is None and not key.expired(now))
        return any(KeyScope.ADMIN in key.scopes for key in lasting)

    async def create(self, request: KeyRequest) -> MadeKey:
        """A new key, durable once this returns. Its secret is in the answer and nowhere else."""
        key, token = self._new(request.name, request.scopes, request.queues, request.lifetime_seconds)
        await self._catalog.put_notices(NoticeKind.KEY, _encode(key))
        return made_key(key, token)

    async def open_session(self, parent: ApiKey, scopes: Sequence[KeyScope] | None, lifetime: timedelta) -> MadeKey:
        """A key for a browser: those scopes of its parent (None: all of them), for a while, while the parent is good.

        Sessions that have expired are removed with it. Forbidden for scopes that the parent lacks, and for a parent
        that is a session itself: it would never end.
        """
        if parent.parent is not None:
            raise Forbidden(f"the API key {parent.id} is a session; sign in with the key that it was made from")
        for scope in scopes or ():
            require(parent, (scope,))
        key, token = self._new(
            parent.name, scopes or parent.scopes, _queues_for(parent, scopes), lifetime.total_seconds()
        )
        key = replace(key, parent=parent.id)
        now = self._clock.now()
        over = [one.id for one in (await self._read_keys()).values() if one.parent is not None and one.expired(now)]
        await self._catalog.put_notices(NoticeKind.KEY, _encode(key) | dict.fromkeys(over[:SESSIONS_REMOVED]))
        return made_key(key, token)

    async def knows(self, token: str) -> bool:
        """Whether this is a key that is good now."""
        return await self._find_key(token) is not None

    async def rotate(self, id: KeyId, request: RotateRequest) -> MadeKey:
        """A new key with the terms of an old one, which expires after the grace, or earlier if it would have."""
        last = self._clock.now() + seconds(request.grace_seconds)
        made: list[tuple[ApiKey, str]] = []

        def rotate_key(reading: CatalogReading) -> dict[str, bytes | None]:
            old = _named(_keys_in(reading.notices), id)
            # One new key, however often `change` calls this.
            if not made:
                fresh, token = self._new(old.name, old.scopes, old.queues, request.lifetime_seconds)
                made.append((replace(fresh, parent=old.parent), token))
            return _encode(made[0][0], replace(old, expires_at=min(last, old.expires_at or last)))

        await self._catalog.change(NoticeKind.KEY, rotate_key)
        return made_key(*made[0])

    async def revoke(self, id: KeyId) -> tuple[ShardId, ...]:
        """Revoke a key for good; the shards that could not be told yet. NotFound if there was no key of this id.

        Every process that knows of the revocation tells those shards as soon as they answer. Idempotent.
        """

        def revoke_key(reading: CatalogReading) -> dict[str, bytes | None]:
            known = reading.notices.get((NoticeKind.KEY, id))
            if known is not None and known.value is None:
                return {}
            _named(_keys_in(reading.notices), id)
            return {id: None}

        await self._catalog.change(NoticeKind.KEY, revoke_key)
        return await self._catalog.spread(NoticeKind.KEY, id)

    def lend(self, name: str, scopes: Sequence[KeyScope], token: str | None = None) -> str:
        """A key that only this process knows, for the processes that it starts.

        With the `token` of a key that an earlier process lent, that key: the workers that have it stay known.
        """
        key, fresh = self._new(name, scopes)
        if token is not None and (parsed := parse_token(token)) is not None:
            id, secret = parsed
            key, fresh = replace(key, id=id, digest=digest_of(secret)), token
        self._lent[key.id] = key
        return fresh

    def _new(
        self,
        name: str,
        scopes: Sequence[KeyScope],
        queues: Sequence[str] | None = None,
        lifetime_seconds: float | None = None,
    ) -> tuple[ApiKey, str]:
        check_terms(scopes, queues)
        id, secret, now = new_id(self._random_bytes), new_secret(self._random_bytes), self._clock.now()
        key = ApiKey(
            id=id,
            name=name,
            digest=digest_of(secret),
            scopes=tuple(scope for scope in KeyScope if scope in scopes),
            queues=None if queues is None else tuple(sorted(set(queues))),
            created_at=now,
            expires_at=_after(now, lifetime_seconds),
        )
        return key, token_of(id, secret)

    async def _find_key(self, token: str) -> ApiKey | None:
        parsed = parse_token(token)
        if parsed is None:
            return None
        id, secret = parsed
        keys = await self._read_keys()
        key = self._lent.get(id) or keys.get(id)
        if not proves(secret, key) or key is None or key.expired(self._clock.now()):
            return None
        return key if key.parent is None or self._is_good(key.parent, keys) else None

    def _is_good(self, id: KeyIdText, keys: Mapping[str, ApiKey]) -> bool:
        """Whether there is a key of this id that has neither been revoked nor expired."""
        key = self._lent.get(id) or keys.get(id)
        return key is not None and not key.expired(self._clock.now())

    async def _read_keys(self) -> Mapping[str, ApiKey]:
        """The keys by id, decoded once per reading of the catalog."""
        notices = (await self._catalog.read()).notices
        if notices is not self._read_from:
            self._known, self._read_from = _keys_in(notices), notices
        return self._known


def _keys_in(notices: Mapping[Name, Notice]) -> dict[str, ApiKey]:
    in_force = (one for one in notices.values() if one.kind == NoticeKind.KEY and one.value is not None)
    return {one.name: _read_key(one.value or b"") for one in in_force}


def _named(keys: Mapping[str, ApiKey], id: KeyId) -> ApiKey:
    if id not in keys:
        raise NotFound(f"there is no API key {id!r}; `penstock keys list` shows those there are")
    return keys[id]


def _encode(*keys: ApiKey) -> dict[str, bytes | None]:
    return {key.id: msgspec.json.encode(key) for key in keys}


def require(key: ApiKey | None, scopes: Collection[KeyScope]) -> None:
    """Raise Forbidden unless the key, if there is one, has one of the scopes."""
    if key is not None and not key.allows(scopes):
        needed = " or ".join(scopes)
        raise Forbidden(
            f"the API key {key.id} has not the scope {needed}; ask with one that has: "
            f"`penstock keys create --scope {next(iter(scopes))} …`{_hint(key)}",
            scopes=tuple(scopes),
        )


def _hint(key: ApiKey) -> str:
    """A handler uses its worker's key, and mostly that is the one that lacks a scope."""
    return ". In a handler it is the worker's key: give that the scope too" if KeyScope.WORKER in key.scopes else ""


def _queues_for(parent: ApiKey, scopes: Sequence[KeyScope] | None) -> Sequence[str] | None:
    """The queues that a session is limited to: those of its parent, unless it cannot do what they limit."""
    return parent.queues if scopes is None or KeyScope.WORKER in scopes else None


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header; None if there is none, or one of another scheme, as from a proxy."""
    scheme, _, credentials = (authorization or "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else None


def _after(now: datetime, lifetime_seconds: float | None) -> datetime | None:
    return None if lifetime_seconds is None else now + seconds(lifetime_seconds)
