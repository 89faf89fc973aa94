"""What a shard's registry says, remembered for a moment: declared types, paused queues, workers that are alive."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from msgspec import Struct

from penstock.model.errors import UnknownType
from penstock.model.schema import checker
from penstock.model.timing import Clock
from penstock.model.workers import JobType, Worker
from penstock.store import Registry

FRESH = timedelta(seconds=1)
"""How long a reading is trusted; changes made in this process are seen at once."""


class Reading(Struct, frozen=True):
    """The registry at one instant."""

    types: Mapping[str, JobType]
    paused: frozenset[str]
    workers: tuple[Worker, ...]
    at: float

    def type(self, name: str, *, allow_unknown: bool) -> JobType:
        """The type of that name; one that nobody has declared yet gets the plainest defaults, if it is allowed."""
        if (declared := self.types.get(name)) is not None:
            return declared
        if allow_unknown:
            return JobType(name=name, queue=name)
        names = ", ".join(sorted(self.types)) or "none yet"
        raise UnknownType(
            f"no job type is named {name!r}; known: {names}. Start a worker that declares it, "
            "or set server.allow_unknown_types to accept jobs before their worker exists",
            known=sorted(self.types),
        )


class Catalog:
    """The registry through a short memory, so that a submit costs no read."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._reading: Reading | None = None
        self._checkers: dict[str, tuple[JobType, Callable[[bytes], None]]] = {}

    async def read(self) -> Reading:
        reading = self._reading
        if reading is None or self._clock.monotonic() - reading.at > FRESH.total_seconds():
            reading = self._reading = await self._fetch()
        return reading

    async def declare(self, types: Sequence[JobType]) -> None:
        """Make types known to everyone; a type of the same name is replaced."""
        known = (await self.read()).types
        if fresh := [declared for declared in types if known.get(declared.name) != declared]:
            await self._registry.declare(fresh)
        self.forget()

    async def pause(self, queue: str, *, paused: bool) -> None:
        await self._registry.pause(queue, paused=paused)
        self.forget()

    def forget(self) -> None:
        """The next read asks the registry."""
        self._reading = None

    def check(self, declared: JobType, params: bytes) -> None:
        """Raise InvalidParams where params do not fit the handler's signature, as far as it is known."""
        if declared.params_schema is None:
            return
        compiled = self._checkers.get(declared.name)
        if compiled is None or compiled[0] is not declared:
            compiled = self._checkers[declared.name] = (declared, checker(declared.params_schema))
        compiled[1](params)

    async def _fetch(self) -> Reading:
        at = self._clock.monotonic()
        types = {declared.name: declared for declared in await self._registry.types()}
        return Reading(types, await self._registry.paused(), tuple(await self._registry.workers()), at)
