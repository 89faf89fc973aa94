"""In the agent: the schedules that the app declares, brought to the server once it knows the types."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from penstock.engine.reach import Reach
from penstock.model.errors import Invalid, InvalidSetting, TooLarge
from penstock.model.schedule_wire import ScheduleRequest
from penstock.worker.frames import Loaded


@runtime_checkable
class TakesSchedules(Protocol):
    """A reach that leads to where schedules are kept."""

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        """Make each what it says now; one that says so already stays untouched. May be repeated."""
        ...


async def declare(loaded: Loaded, reach: Reach) -> None:
    """Bring what the app declares to the server. InvalidSetting if that cannot be; Unavailable if it is not now."""
    if not loaded.schedules or not isinstance(reach, TakesSchedules):
        return
    try:
        await reach.declare([msgspec.json.decode(raw, type=ScheduleRequest) for raw in loaded.schedules])
    except (Invalid, TooLarge) as error:
        raise InvalidSetting(f"a schedule of the app was refused: {error.message}") from error
