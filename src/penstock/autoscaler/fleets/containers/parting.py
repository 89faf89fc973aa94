"""How far a container is on its way out, written into its name. Pure.

The name is the one thing of a container that can be changed while it runs, so an autoscaler that was started again
knows whom its predecessor has asked to stop, and until when they were given.
"""

import re
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from penstock.model.timing import from_millis, to_millis

UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
MARKED = re.compile(r"\.(?P<stage>leaving|draining|hurried)(?:-(?P<until>\d+))?$")

AFTER_HURRY = timedelta(seconds=60)
"""How long a worker that was told to hurry may take to give its jobs back, before it is killed."""


class StopStage(StrEnum):
    """`leaving` ones are still to be told that they shall drain, `hurried` ones were told a second time."""

    WORKING = "working"
    LEAVING = "leaving"
    DRAINING = "draining"
    HURRIED = "hurried"


class StopPlan(Struct, frozen=True):
    """A stage and when it is over; None: as long as it takes."""

    stage: StopStage = StopStage.WORKING
    until: datetime | None = None

    def sooner(self, until: datetime | None) -> "StopPlan":
        """What it becomes when the end is asked for by this time: never later than before."""
        if self.stage is StopStage.HURRIED or until is None:
            return self
        return StopPlan(self.stage, until if self.until is None else min(until, self.until))

    def overdue(self, now: datetime) -> bool:
        return self.stage is not StopStage.WORKING and self.until is not None and self.until <= now


def hurried(now: datetime) -> StopPlan:
    return StopPlan(StopStage.HURRIED, now + AFTER_HURRY)


def container_name(worker: str, parting: StopPlan) -> str:
    """What the container of this worker is called in this stage; engines allow fewer letters than we do."""
    stem = UNFIT.sub("-", worker)
    if parting.stage is StopStage.WORKING:
        return stem
    return f"{stem}.{parting.stage}" + ("" if parting.until is None else f"-{to_millis(parting.until)}")


def stop_plan_of(name: str) -> StopPlan:
    """What the name of a container says."""
    mark = MARKED.search(name)
    if mark is None:
        return StopPlan()
    return StopPlan(StopStage(mark["stage"]), None if mark["until"] is None else from_millis(int(mark["until"])))
