"""In the agent: the schedules that the app declares, brought to the server once it knows the types."""

import msgspec
from msgspec.structs import replace

from penstock.engine.reach import WorkerApi
from penstock.model.errors import Forbidden, Invalid, InvalidSetting, TooLarge
from penstock.model.schedule_wire import ScheduleRequest
from penstock.worker.frames import Loaded


async def declare(loaded: Loaded, reach: WorkerApi, code_age_seconds: float) -> None:
    """Bring what the app declares to the server. InvalidSetting if that cannot be; Unavailable if it is not now.

    What newer code has declared stays.
    """
    if not loaded.schedules:
        return
    requests = [msgspec.json.decode(raw, type=ScheduleRequest) for raw in loaded.schedules]
    try:
        await reach.declare([replace(one, code_age_seconds=code_age_seconds) for one in requests])
    except (Forbidden, Invalid, TooLarge) as error:
        raise InvalidSetting(f"a schedule of the app was refused: {error.message}") from error
