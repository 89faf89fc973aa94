"""Submits under idempotency keys: one that is held by an open transaction concerns the jobs under it, and no others."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from penstock.model.submission import Held, Submission
from penstock.model.timing import Clock
from penstock.store.postgres.connections import ConnectionPool
from penstock.store.postgres.faults import HeldElsewhere
from penstock.store.postgres.lanes import MoveBatcher
from penstock.store.postgres.statements import Connection
from penstock.store.postgres.submit import Entry, held_keys, submit
from penstock.store.postgres.transaction import Session

ATTEMPTS = 3
SUSPECTED_SECONDS = 60.0
"""How long a key that was held is looked at before it is submitted with others."""


class KeyedSubmits:
    """A lane for submits with keys. Apart from those without: the first to ask for a held key waits a little for it."""

    def __init__(self, connections: ConnectionPool, given: Callable[[], int | None], clock: Clock) -> None:
        self._connections = connections
        self._given = given
        self._clock = clock
        self._lane = MoveBatcher(connections, given, submit)
        self._suspects: dict[str, float] = {}

    async def each(self, entries: Sequence[Entry]) -> list[Submission]:
        """One answer each, in order: Held for those whose key is held, and the others as if these were not there."""
        held = await self._find_held(self._suspected(entries))
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._submit_without(held, entries)
            except HeldElsewhere:
                held |= await self._find_held({new.key for new, _ in entries if new.key is not None} - held)
        return await self._submit_without(held, entries)

    async def close(self) -> None:
        """Finish what was accepted."""
        await self._lane.close()

    async def _submit_without(self, held: set[str], entries: Sequence[Entry]) -> list[Submission]:
        answers = iter(await self._lane.each([entry for entry in entries if entry[0].key not in held]))
        return [Held(new) if new.key in held else next(answers) for new, _ in entries]

    def _suspected(self, entries: Sequence[Entry]) -> set[str]:
        if not self._suspects:
            return set()
        now = self._clock.monotonic()
        self._suspects = {key: until for key, until in self._suspects.items() if until > now}
        return {new.key for new, _ in entries if new.key in self._suspects}

    async def _find_held(self, keys: Collection[str]) -> set[str]:
        if not keys:
            return set()
        held = await self._connections.run(partial(self._ask, sorted(keys)))
        until = self._clock.monotonic() + SUSPECTED_SECONDS
        for key in keys:
            self._suspects.pop(key, None)
        self._suspects.update(dict.fromkeys(held, until))
        return held

    async def _ask(self, keys: Sequence[str], connection: Connection) -> set[str]:
        return await held_keys(Session(connection, self._given()), keys)
