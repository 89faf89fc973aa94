"""The declared job types: listed, renamed, retired."""

from collections.abc import Sequence

from penstock.engine.catalog import CatalogReading
from penstock.engine.parts import EngineParts
from penstock.engine.queues import Queues
from penstock.model.declarations import plain_type
from penstock.model.errors import Invalid, NotFound, Unavailable
from penstock.model.job import JobFilter
from penstock.model.lifecycle import WAITING, State
from penstock.model.notices import NoticeKind
from penstock.model.wire.types import RetiredType, TypeItem
from penstock.model.workers import JobType
from penstock.store.answers import require

CANCELLED_AT_ONCE = 1000
"""Most jobs that one call cancels; call again to cancel more."""


class Types:
    """The declared types: listed, renamed, retired."""

    def __init__(self, parts: EngineParts, queues: Queues) -> None:
        self._store = parts.store
        self._catalog = parts.catalog
        self._tickets = parts.tickets
        self._signals = parts.signals
        self._queues = queues

    async def list(self) -> list[TypeItem]:
        """All declared types, by name."""
        reading = await self._catalog.read()
        return [_item(reading, name) for name in sorted(reading.types)]

    async def alias(self, name: str, run_as: str) -> TypeItem:
        """Let jobs and submits of one type be run as another, which must be declared."""

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            declared = reading.type(run_as, allow_unknown=False)
            if declared.name == name:
                raise Invalid(f"job type {name!r} cannot be run as {run_as!r}, which is run as {name!r} already")
            return {name: run_as.encode()}

        await self._catalog.change(NoticeKind.ALIAS, decide)
        self._tickets.pauses_changed()
        reading = await self._catalog.read()
        return _item(reading, reading.run_as(name))

    async def remove_alias(self, name: str) -> None:
        """Let jobs of a type be run by its own handler again."""

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            if name not in reading.aliases:
                raise NotFound(f"job type {name!r} is run as no other")
            return {name: None}

        await self._catalog.change(NoticeKind.ALIAS, decide)
        self._tickets.pauses_changed()

    async def retire(self, name: str, *, cancel: bool = False) -> RetiredType:
        """Withdraw the declaration of a type and its alias: no job of it is accepted any more.

        Code that is deployed later may declare it again. Waiting jobs stay; `cancel` cancels up to CANCELLED_AT_ONCE.
        """

        def decide(reading: CatalogReading) -> dict[str, bytes | None]:
            if name not in reading.types and name not in reading.aliases and reading.retired_at(name) is None:
                raise NotFound(
                    f"there is no job type {name!r}; known: {', '.join(sorted(reading.types)) or 'none yet'}"
                )
            return {name: None} if reading.retired_at(name) is None else {}

        await self._catalog.change(NoticeKind.TYPE, decide)
        await self._catalog.change(NoticeKind.ALIAS, lambda reading: {name: None} if name in reading.aliases else {})
        cancelled = await self._cancel(name) if cancel else 0
        return RetiredType(name, await self._count_open(name), cancelled)

    async def _cancel(self, name: str) -> int:
        cancelled = 0
        for stored_type, state in await self._find_waiting(name):
            page = await self._store.page(JobFilter(type=stored_type, state=state), None, CANCELLED_AT_ONCE - cancelled)
            answers = await self._store.cancel([job.id for job in page.jobs])
            given = [answer for answer in answers if not isinstance(answer, Unavailable)]
            events = [answer.event for answer in given if answer.event is not None]
            self._signals.publish_events(events)
            require(answers)
            cancelled += len(events)
        return cancelled

    async def _find_waiting(self, name: str) -> Sequence[tuple[str, State]]:
        """The names and states of the waiting jobs of a type."""
        counted = [one for one in await self._store.counts() if plain_type(one.type) == name and one.jobs]
        found = {(one.type, one.state) for one in counted if one.state in WAITING}
        # Jobs that were submitted just now may not be counted yet.
        unseen = set() if self._store.capabilities.exact_counts else {(name, state) for state in WAITING}
        return sorted(found | unseen)

    async def _count_open(self, name: str) -> dict[State, int]:
        """The jobs of a type that have not ended, by state."""
        jobs: dict[State, int] = {}
        for count in await self._queues.counts():
            if count.type == name and not count.state.terminal and count.jobs:
                jobs[count.state] = jobs.get(count.state, 0) + count.jobs
        return jobs


def _item(reading: CatalogReading, name: str) -> TypeItem:
    declared = reading.types[name]
    fields = {field: getattr(declared, field) for field in JobType.__struct_fields__}
    return TypeItem(
        **fields,
        declared_at=declared.declared_at,
        signature=declared.signature,
        aliases=tuple(sorted(old for old in reading.aliases if reading.run_as(old) == name)),
        run_as=None if reading.run_as(name) == name else reading.run_as(name),
    )
