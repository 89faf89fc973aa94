"""What the registry says, remembered for a moment: declared types, paused queues, workers that are alive."""

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

MAX_AGE = timedelta(seconds=1)
"""How long a reading is trusted; changes made in this process are seen at once."""

RECENT = timedelta(minutes=5)
"""Workers not heard from for longer are not read any more: when they were is kept with their types by then."""
_FRESH_SECONDS = MAX_AGE.total_seconds()

TRIES = 20
"""How often a change starts again because another process was faster."""

RETRY_AFTER = 1

_type = lru_cache(maxsize=4096)(msgspec.json.Decoder(DeclaredType).decode)


class CatalogReading(Struct, frozen=True):
    """The registry at one instant. `workers` are those heard from lately: the others cost a submit nothing."""

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
        """What counts once a type is declared by code of that age; None if that changes nothing."""
        known, retired_at = self.types.get(declared.name), self.retired_at(declared.name)
        if retired_at is not None and deployed_at <= retired_at:
            return None
        run_as = self.types.get(self.run_as(declared.name))
        if run_as is not None and within is not None and run_as.queue not in within:
            raise Forbidden(
                f"job type {declared.name!r} is of queue {run_as.queue}, which this API key is not for; "
                "declare it with a key that is, or give the type another name"
            )
        told = declare(declared, deployed_at, known, app)
        return None if told is known else told

    def run_as(self, name: str) -> str:
        """The type whose handler runs jobs of this one: itself, unless it was renamed."""
        name = plain_type(name)
        for _ in self.aliases:
            if name not in self.aliases:
                break
            name = self.aliases[name]
        return name

    def handled_as(self, name: str) -> tuple[str, ...]:
        """The names of handlers that can run jobs of a type, the best first: its new name, and its own."""
        plain = plain_type(name)
        run_as = self.run_as(plain)
        return (plain,) if run_as == plain else (run_as, plain)

    def retired_at(self, name: str) -> datetime | None:
        """When a type was withdrawn; None if it is declared, or never was."""
        notice = self.notices.get((NoticeKind.TYPE, name))
        return None if notice is None or notice.value is not None else notice.told_at

    def type(self, name: str, *, allow_unknown: bool) -> JobType:
        """The type of that name, or what it is now called.

        One that nobody has declared yet gets the plainest defaults, if it is allowed; one that was retired is refused.
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
    """The registry through a short memory, so that a submit costs no read."""

    def __init__(self, store: Store, clock: Clock, signals: Signals) -> None:
        self._store = store
        self._clock = clock
        self._signals = signals
        self._reading: CatalogReading | None = None
        self._stale = True
        self._reading_now: asyncio.Future[CatalogReading] | None = None
        self.expecting: str | None = None
        """The app that this process is importing, and whose types it will declare; None once it has, or has no app."""
        self._checkers: dict[str, tuple[JobType, Callable[[bytes], None]]] = {}

    async def read(self) -> CatalogReading:
        """The latest reading. While the store cannot be read, the last one that was: what is known goes on."""
        known = self._reading
        if known is not None and not self._stale and self._clock.monotonic() - known.at <= _FRESH_SECONDS:
            return known
        if self._reading_now is None:
            self._reading_now = asyncio.ensure_future(self._read())
        # Shielded: one caller that goes away must not take the answer from the others.
        return await asyncio.shield(self._reading_now)

    def require_types(self) -> None:
        """Raise Starting while the types are those of an earlier life: what they refuse, or accept, says nothing."""
        if self.expecting is not None:
            raise Starting(f"the job types of {self.expecting} are not known yet; retry in a moment")

    async def read_store(self) -> CatalogReading:
        """What the store says at this moment; Unavailable if it cannot."""
        return await self._fetch()

    async def _read(self) -> CatalogReading:
        """What all who ask meanwhile are given."""
        begun = asyncio.current_task()
        reading = await self._fetch_or_know()
        if self._reading_now is begun:
            # Otherwise something was changed meanwhile, and a later reading is on its way.
            self._reading, self._reading_now, self._stale = reading, None, False
        return reading

    async def _fetch_or_know(self) -> CatalogReading:
        try:
            return await self._fetch()
        except Unavailable:
            if self._reading is None:
                self._reading_now = None
                raise
            return replace(self._reading, at=self._clock.monotonic())

    async def declare(
        self,
        types: Sequence[JobType],
        age: timedelta = timedelta(0),
        within: Collection[str] | None = None,
        app: str | None = None,
    ) -> None:
        """Make types of an app known to everyone, of code that was deployed so long ago; the newer declaration counts.

        `within`: only types of these queues may be declared so; Forbidden for one that is known to be of another.
        """

        def declared(reading: CatalogReading) -> dict[str, bytes | None]:
            deployed_at = reading.shard_now - age
            told = {one.name: reading.declared(one, deployed_at, within, app) for one in types}
            return {name: msgspec.json.encode(one) for name, one in told.items() if one is not None}

        await self.change(NoticeKind.TYPE, declared)

    async def pause(self, queue: str, *, paused: bool) -> None:
        """Told again even where it is so already: a shard that is away may know otherwise."""
        await self.put_notices(NoticeKind.PAUSE, {queue: b"true" if paused else None})

    async def put_notices(self, kind: NoticeKind, values: Mapping[str, bytes | None]) -> None:
        """Declare something under each of the names, for everyone; None withdraws what was declared."""
        await self.change(kind, lambda _: values)

    async def change(self, kind: NoticeKind, decide: Callable[[CatalogReading], Mapping[str, bytes | None]]) -> None:
        """Tell, by name, what `decide` makes of the registry as the store has it now; what it raises is raised.

        The store compares what it decided on: where somebody else was faster, it is asked again with what is so now.
        StoreUnavailable if that does not end.
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
        """Tell every shard what counts about a name, if anything does. The shards that could not be told."""
        counting = (await self._fetch()).notices.get((kind, name))
        if counting is None:
            return ()
        told = await asyncio.gather(*(_tell(shard, counting) for shard in self._store.shards()))
        reached = {shard.shard for shard in told if shard is not None}
        every = {*(shard.shard for shard in self._store.shards()), *self._store.unavailable()}
        return tuple(sorted(every - reached))

    def forget(self) -> None:
        """The next read asks the store, and does not wait for one that began before."""
        self._stale = True
        self._reading_now = None

    def check(self, declared: JobType, params: bytes) -> None:
        """Raise InvalidParams where params do not fit the handler's signature, as far as it is known."""
        if declared.params_schema is None:
            return
        compiled = self._checkers.get(declared.name)
        if compiled is None or compiled[0] is not declared:
            compiled = self._checkers[declared.name] = (declared, checker(declared.params_schema))
        compiled[1](params)

    async def _fetch(self) -> CatalogReading:
        at, now = self._clock.monotonic(), await self._store.now()
        notices = newest(await self._store.notices())
        standing = [one for one in notices.values() if one.value is not None]
        return CatalogReading(
            notices=notices,
            types=_types_in(standing),
            aliases={one.name: (one.value or b"").decode() for one in standing if one.kind == NoticeKind.ALIAS},
            paused=frozenset(one.name for one in standing if one.kind == NoticeKind.PAUSE),
            workers=tuple(await self._store.workers(Seen(after=now - RECENT))),
            at=at,
            shard_now=now,
        )


async def _tell(shard: Shard, notice: Notice) -> Shard | None:
    """The shard, if it keeps the notice now."""
    try:
        await shard.put_notices([notice])
    except Unavailable:
        return None
    return shard


def _types_in(notices: Iterable[Notice]) -> dict[str, DeclaredType]:
    """The declared types. One in the words of another version is left out, until it is declared again."""
    types: dict[str, DeclaredType] = {}
    for one in notices:
        if one.kind == NoticeKind.TYPE:
            try:
                types[one.name] = _type(one.value or b"")
            except msgspec.ValidationError as error:
                logger.debug("the declaration of %s cannot be read: %s", one.name, error)
    return types
