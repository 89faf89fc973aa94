"""The catalog: a short-lived cache of the registry with its declared types, paused queues and live workers."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.signals import Signals
from penstock.model.clock import Clock
from penstock.model.declarations import DeclaredType, declare, plain_type
from penstock.model.errors import Forbidden, Starting, StoreUnavailable, Unavailable, UnknownType
from penstock.model.ids import ShardId
from penstock.model.notices import Name, Notice, NoticeKind, newest, notice_change
from penstock.model.schema import checker
from penstock.model.workers import JobType, Seen, Worker
from penstock.store import Shard, Store

logger = logging.getLogger("penstock.engine")

RECENT = timedelta(minutes=5)
"""Workers not seen for longer are not read: by then their types say when a worker last had them."""

TRIES = 20
"""How often a change is tried again after another process changed the same first."""

RETRY_AFTER = 1

_type = lru_cache(maxsize=4096)(msgspec.json.Decoder(DeclaredType).decode)


class CatalogReading(Struct, frozen=True):
    """The registry at one instant. `workers` are those seen within RECENT, so that a submit reads few rows."""

    notices: Mapping[Name, Notice]
    types: Mapping[str, DeclaredType]
    aliases: Mapping[str, str]
    paused: frozenset[str]
    workers: tuple[Worker, ...]
    at: float
    shard_now: datetime

    def declared(
        self, declared: JobType, deployed_at: datetime, within: Collection[str] | None, app: str | None = None
    ) -> DeclaredType | None:
        """The declaration that counts once code deployed then declares a type; None if it stays as it is."""
        known, retired_at = self.types.get(declared.name), self.retired_at(declared.name)
        if retired_at is not None and deployed_at <= retired_at:
            return None
        run_as = self.types.get(self.run_as(declared.name))
        if run_as is not None and within is not None and run_as.queue not in within:
            raise Forbidden(
                f"job type {declared.name!r} is of queue {run_as.queue}, which this API key is not for; "
                "declare it with a key that is, or give the type another name"
            )
        newest_type = declare(declared, deployed_at, known, app)
        return None if newest_type is known else newest_type

    def run_as(self, name: str) -> str:
        """The type whose handler runs jobs of this one: itself, unless it was renamed."""
        name = plain_type(name)
        for _ in self.aliases:
            if name not in self.aliases:
                break
            name = self.aliases[name]
        return name

    def handled_as(self, name: str) -> tuple[str, ...]:
        """The names of handlers that can run jobs of a type, the preferred first: its new name, then its own."""
        plain = plain_type(name)
        run_as = self.run_as(plain)
        return (plain,) if run_as == plain else (run_as, plain)

    def retired_at(self, name: str) -> datetime | None:
        """When a type was withdrawn; None if it is declared, or never was."""
        notice = self.notices.get((NoticeKind.TYPE, name))
        return None if notice is None or notice.value is not None else notice.told_at

    def type(self, name: str, *, allow_unknown: bool) -> JobType:
        """The type of that name, or the one it was renamed to.

        A type that is not declared gets default settings if `allow_unknown`; a retired one raises UnknownType.
        """
        run_as = self.run_as(name)
        if (declared := self.types.get(run_as)) is not None:
            return declared
        retired_at = self.retired_at(run_as)
        if retired_at is None and allow_unknown:
            return JobType(name=run_as, queue=run_as)
        names = ", ".join(sorted(self.types)) or "none yet"
        if retired_at is not None:
            raise UnknownType(
                f"job type {run_as!r} was retired at {retired_at:%Y-%m-%dT%H:%M:%SZ}; known: {names}",
                known=sorted(self.types),
            )
        raise UnknownType(
            f"no job type is named {name!r}; known: {names}. Start a worker that declares it, "
            "or set server.allow_unknown_types to accept jobs before their worker exists",
            known=sorted(self.types),
        )


class Catalog:
    """Reads the registry at most once per `max_age`, so that a submit costs no read; and changes it.

    Changes made in this process are seen at once.
    """

    def __init__(self, store: Store, clock: Clock, signals: Signals, max_age: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._signals = signals
        self._max_age = max_age.total_seconds()
        self._reading: CatalogReading | None = None
        self._stale = True
        self._reading_now: asyncio.Future[CatalogReading] | None = None
        self.expecting: str | None = None
        """The app that this process is importing, and whose types it will declare; None once it has, or has no app."""
        self._checkers: dict[str, tuple[JobType, Callable[[bytes], None]]] = {}

    async def read(self) -> CatalogReading:
        """A reading of at most `max_age`. While the store is unavailable, the last one."""
        known = self._reading
        if known is not None and not self._stale and self._clock.monotonic() - known.at <= self._max_age:
            return known
        if self._reading_now is None:
            self._reading_now = asyncio.ensure_future(self._read())
        # Shielded: the other callers must get their answer when one is cancelled.
        return await asyncio.shield(self._reading_now)

    def require_types(self) -> None:
        """Raise Starting until the app of this process is imported: the types known so far are of an earlier run."""
        if self.expecting is not None:
            raise Starting(f"the job types of {self.expecting} are not known yet; retry in a moment")

    async def read_store(self) -> CatalogReading:
        """A reading of this moment, past the cache; Unavailable if the store is."""
        return await self._fetch()

    async def _read(self) -> CatalogReading:
        """Read for all concurrent callers."""
        task = asyncio.current_task()
        try:
            reading = await self._fetch_or_reuse()
        except BaseException:
            # Else every later caller would get this error again.
            if self._reading_now is task:
                self._reading_now = None
            raise
        if self._reading_now is task:
            # Otherwise the registry was changed meanwhile, and a later read has begun.
            self._reading, self._reading_now, self._stale = reading, None, False
        return reading

    async def _fetch_or_reuse(self) -> CatalogReading:
        try:
            return await self._fetch()
        except Unavailable:
            if self._reading is None:
                raise
            return replace(self._reading, at=self._clock.monotonic())

    async def declare(
        self,
        types: Sequence[JobType],
        age: timedelta = timedelta(0),
        within: Collection[str] | None = None,
        app: str | None = None,
    ) -> None:
        """Declare the types of an app whose code was deployed `age` ago; the declaration of newer code counts.

        `within`: only types of these queues may be declared; Forbidden for one that is known to be of another.
        """

        def declared(reading: CatalogReading) -> dict[str, bytes | None]:
            deployed_at = reading.shard_now - age
            changed = {one.name: reading.declared(one, deployed_at, within, app) for one in types}
            return {name: msgspec.json.encode(one) for name, one in changed.items() if one is not None}

        await self.change(NoticeKind.TYPE, declared)

    async def pause(self, queue: str, *, paused: bool) -> None:
        """Written even if the queue is paused already: a shard that was unavailable may not know."""
        await self.put_notices(NoticeKind.PAUSE, {queue: b"true" if paused else None})

    async def put_notices(self, kind: NoticeKind, values: Mapping[str, bytes | None]) -> None:
        """Write a notice under each name, for all processes; None withdraws it."""
        await self.change(kind, lambda _: values)

    async def change(self, kind: NoticeKind, decide: Callable[[CatalogReading], Mapping[str, bytes | None]]) -> None:
        """Write the notices that `decide` returns, by name, for the registry as the store has it now.

        The store refuses a change of a notice that another process changed meanwhile; then `decide` is called again
        with a new reading, up to TRIES times. StoreUnavailable after that. What `decide` raises is raised.
        """
        for _ in range(TRIES):
            reading = await self._fetch()
            values, now = decide(reading), reading.shard_now
            changes = [notice_change(kind, name, value, now, reading.notices) for name, value in values.items()]
            if not changes or all(await self._store.change_notices(changes)):
                break
        else:
            raise StoreUnavailable("others change the same all the time; retry in a moment", retry_after=RETRY_AFTER)
        self.forget()
        if changes:
            self._signals.notices.send(None)

    async def spread(self, kind: NoticeKind, name: str) -> tuple[ShardId, ...]:
        """Write the newest notice of a name to every shard; returns the shards that could not be reached."""
        newest_notice = (await self._fetch()).notices.get((kind, name))
        if newest_notice is None:
            return ()
        written = await asyncio.gather(*(_put_notice(shard, newest_notice) for shard in self._store.shards()))
        reached = {shard.shard for shard in written if shard is not None}
        every = {*(shard.shard for shard in self._store.shards()), *self._store.unavailable()}
        return tuple(sorted(every - reached))

    def forget(self) -> None:
        """Let the next read ask the store, without waiting for a read that has begun."""
        self._stale = True
        self._reading_now = None

    def check(self, declared: JobType, params: bytes) -> None:
        """Raise InvalidParams if params do not fit the handler's signature, as far as it is known."""
        if declared.params_schema is None:
            return
        compiled = self._checkers.get(declared.name)
        if compiled is None or compiled[0] is not declared:
            compiled = self._checkers[declared.name] = (declared, checker(declared.params_schema))
        compiled[1](params)

    async def _fetch(self) -> CatalogReading:
        at, now = self._clock.monotonic(), await self._store.now()
        notices = newest(await self._store.notices())
        in_force = [one for one in notices.values() if one.value is not None]
        return CatalogReading(
            notices=notices,
            types=_types_in(in_force),
            aliases={one.name: (one.value or b"").decode() for one in in_force if one.kind == NoticeKind.ALIAS},
            paused=frozenset(one.name for one in in_force if one.kind == NoticeKind.PAUSE),
            workers=tuple(await self._store.workers(Seen(after=now - RECENT))),
            at=at,
            shard_now=now,
        )


async def _put_notice(shard: Shard, notice: Notice) -> Shard | None:
    """The shard, if it has stored the notice."""
    try:
        await shard.put_notices([notice])
    except Unavailable:
        return None
    return shard


def _types_in(notices: Iterable[Notice]) -> dict[str, DeclaredType]:
    """The declared types, without those that another version wrote and this one cannot read."""
    types: dict[str, DeclaredType] = {}
    for one in notices:
        if one.kind == NoticeKind.TYPE:
            try:
                types[one.name] = _type(one.value or b"")
            except msgspec.ValidationError as error:
                logger.debug("the declaration of %s cannot be read: %s", one.name, error)
    return types
