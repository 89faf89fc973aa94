"""In the agent: the schedules that the app declares, brought to the server once it knows the types."""

import msgspec

from penstock.engine.reach import Reach
from penstock.model.errors import Forbidden, Invalid, InvalidSetting, TooLarge
from penstock.model.schedule_wire import ScheduleRequest
from penstock.worker.frames import Loaded


async def declare(loaded: Loaded, reach: Reach) -> None:
    """Bring what the app declares to the server. InvalidSetting if that cannot be; Unavailable if it is not now."""
    if not loaded.schedules:
        return
    try:
        await reach.declare([msgspec.json.decode(raw, type=ScheduleRequest) for raw in loaded.schedules])
    except (Forbidden, Invalid, TooLarge) as error:
        raise InvalidSetting(f"a schedule of the app was refused: {error.message}") from error
