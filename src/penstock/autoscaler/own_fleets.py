"""Which fleets of the plan an autoscaler acts for, and their names: those that serve job types of its app.

Several apps may share a queue, or the default fleet. Then each has workers of its own for it: the first has the fleet
of that name, another one a copy that is named after the app too.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from msgspec.structs import replace

from penstock.model.clock import Clock
from penstock.model.declarations import DeclaredType
from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.wire.fleets import FleetRecord
from penstock.store import Store

NAME_KEPT_FOR = timedelta(hours=1)
"""How long a fleet is its app's while no autoscaler of the app runs: its workers may be there still."""
NAME_RENEWED_AFTER = timedelta(minutes=1)


class OwnFleets:
    """The fleets of one app. Those of others are left to their own autoscalers."""

    def __init__(self, store: Store, clock: Clock, app: str) -> None:
        self._store = store
        self._clock = clock
        self._app = app
        self._names: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    async def find(
        self, planned: Mapping[str, EffectiveFleet], types: Mapping[str, DeclaredType]
    ) -> dict[str, EffectiveFleet]:
        """By name, the fleets that serve a type of the app, or types of which no app is known, or none."""
        found: dict[str, EffectiveFleet] = {}
        for standing in planned.values():
            if standing.copy_of is None and _is_own(standing, types.values(), self._app):
                name = await self._find_name(standing.name)
                found[name] = planned.get(name) or replace(standing, name=name, copy_of=standing.name)
        return found

    def left_over(self, records: Mapping[str, FleetRecord], planned: Mapping[str, EffectiveFleet]) -> set[str]:
        """The fleets that this app has had: what is not found any more of them has to go."""
        return {
            name
            for name, record in records.items()
            if record.app == self._app or (record.app is None and name not in planned)
        }

    async def _find_name(self, planned: str) -> str:
        now = self._clock.monotonic()
        if now - self._asked_at.get(planned, float("-inf")) >= NAME_RENEWED_AFTER.total_seconds():
            fence = await self._store.acquire_role(f"fleet/{planned}", self._app, NAME_KEPT_FOR)
            # A name that its workers have is not changed while this process lives.
            self._names.setdefault(planned, planned if fence is not None else copy_name(planned, self._app))
            self._asked_at[planned] = now
        return self._names[planned]


def copy_name(planned: str, app: str) -> str:
    """The name of an app's own copy of a fleet, in letters that are safe in a name."""
    letters = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "." for letter in app)
    return f"{planned}.{letters}"[:100]


def _is_own(standing: EffectiveFleet, types: Iterable[DeclaredType], app: str) -> bool:
    served = [one.apps for one in types if standing.serves(one.queue)]
    return any(app in apps for apps in served) or not any(served)
