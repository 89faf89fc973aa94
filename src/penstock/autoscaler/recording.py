"""What is kept of a fleet's decisions: those that changed something, and the latest one; written now and then."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from penstock.model.fleet_plan import EffectiveFleet
from penstock.model.fleet_readings import Runs
from penstock.model.fleet_wire import DECISIONS_KEPT, FleetDecision, FleetRecord, workers_of

AT_MOST_EVERY = timedelta(seconds=1)
AT_LEAST_EVERY = timedelta(seconds=10)


class DecisionRecord:
    """One fleet's record. `due` says when it is worth writing."""

    def __init__(self, by: str, app: str, before: FleetRecord | None) -> None:
        self._by = by
        self._app = app
        self._record = before
        self._written: FleetRecord | None = None
        self._written_at: datetime | None = None

    @property
    def record(self) -> FleetRecord | None:
        return self._record

    def note(self, standing: EffectiveFleet, decision: FleetDecision, trouble: str | None, runs: Runs | None) -> None:
        """One more decision; it joins the others if it changed something."""
        before = self._record
        if before is None:
            before = FleetRecord(by=self._by, latest=replace(decision, desired=-1))
        counts = decision.start or decision.stop or decision.desired != before.latest.desired
        kept = (decision, *before.decisions)[:DECISIONS_KEPT] if counts else before.decisions
        self._record = FleetRecord(
            by=self._by,
            app=self._app,
            copy_of=standing.copy_of,
            queues=standing.queues,
            except_queues=standing.except_queues,
            latest=decision,
            decisions=kept,
            started=before.started + decision.start,
            stopped=before.stopped + decision.stop,
            starts=before.starts + bool(decision.start),
            stops=before.stops + bool(decision.stop),
            trouble=trouble,
            runs=runs,
        )

    def due(self, now: datetime) -> FleetRecord | None:
        """The record, if it should be written now."""
        if self._record is None or self._written is None or self._written_at is None:
            return self._record
        since = now - self._written_at
        changed = since >= AT_MOST_EVERY and _face(self._record) != _face(self._written)
        return self._record if changed or since >= AT_LEAST_EVERY else None

    def written(self, record: FleetRecord, now: datetime) -> None:
        self._written, self._written_at = record, now


def _face(record: FleetRecord) -> tuple[object, ...]:
    """What people look at; how much waits changes with every look, and may be some seconds old."""
    latest = record.latest
    return record.by, record.decisions, latest.desired, workers_of(latest.reading), record.trouble is None
