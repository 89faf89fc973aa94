"""What a store keeps besides jobs: notices, roles, workers, schedules."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from penstock.model.notices import Notice, NoticeChange
from penstock.model.schedule import Due, Schedule, Ticked, TickMove, TickRecord
from penstock.model.workers import EVER, DrainRequest, Seen, Worker


class Registry(Protocol):
    """Notices, roles and workers. Small, and read often."""

    async def put_notices(self, notices: Sequence[Notice]) -> None:
        """Store each notice, unless a newer one about the same thing is there."""
        ...

    async def change_notices(self, changes: Sequence[NoticeChange]) -> list[bool]:
        """Store each notice, unless one about the same thing was stored after the `known_at` it was decided on.

        Whether each was stored, in order: of two that were decided on the same reading, at most one is. Over several
        shards a notice counts as stored when all that answered stored it.
        """
        ...

    async def notices(self) -> list[Notice]:
        """All of them, also those that withdraw, by kind and name."""
        ...

    async def acquire_role(self, role: str, holder: str, span: timedelta) -> int | None:
        """Become or stay the one holder of a role for `span`, by the shard's clock; None while another holds it.

        The answer is the role's fence, which grows each time it passes to another holder.
        """
        ...

    async def release_role(self, role: str, holder: str) -> None:
        """Give up a role, so that another may have it at once; nothing if it is not held."""
        ...

    async def put_worker(self, worker: Worker) -> DrainRequest | None:
        """Create or replace a worker's row, seen now by the shard's clock. The request to drain, if there is one.

        Its patience is what is left of it, by the shard's clock.
        """
        ...

    async def ask_to_drain(self, names: Sequence[str], patience: timedelta | None = None) -> list[str]:
        """Ask workers to drain within `patience`, or as long as it takes; those that have a row, by name.

        `put_worker` answers with the request for as long as the row is there. Of several requests to one worker the
        earliest end counts: a repeated one may shorten the patience, never extend it.
        """
        ...

    async def delete_worker(self, worker: str) -> None: ...

    async def workers(self, seen: Seen = EVER, limit: int | None = None) -> list[Worker]:
        """By id; `state` as last reported, `seen_at` by the shard's clock.

        Of those last seen in a span, the `limit` that were seen last; others cost nothing, however many there are.
        """
        ...

    async def prune_workers(self, before: datetime, limit: int) -> list[Worker]:
        """Forget up to `limit` workers last seen before an instant, the longest silent first. Those, by id."""
        ...


class ScheduleStore(Protocol):
    """One shard's schedules and their ticks."""

    async def put_schedule(
        self, schedule: Schedule, expected_version: int | None, ring: int | None = None
    ) -> Schedule | None:
        """Create (`expected_version` None: there is none of that name) or replace (that version is still its own).

        Returns what is stored, or None when the expectation failed; nothing is changed then. MapChanged where the shard
        is closed, or knows another ring than the one by which a new schedule was routed.
        """
        ...

    async def get_schedules(self, names: Sequence[str]) -> list[Schedule | None]:
        """One answer each, in order."""
        ...

    async def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        """By name, after a name."""
        ...

    async def drop_schedule(self, name: str) -> bool:
        """Remove a schedule and its history; its jobs stay. False if there is none."""
        ...

    async def due_schedules(self, before: datetime, limit: int) -> list[Due]:
        """Schedules that are not paused and have something to decide before that instant, earliest first.

        That is a next tick, a pending tick whose predecessors have all ended, or a completion to count from.
        """
        ...

    async def next_tick(self) -> datetime | None:
        """The earliest next tick of all schedules that are not paused; cheap however many there are."""
        ...

    async def tick(self, moves: Sequence[TickMove], ticket_for: timedelta) -> list[Ticked]:
        """Apply each decision whose schedule still has that version, next tick and pending tick.

        Not while the schedule is paused, unless it was decided `by_hand`.
        Per move one atomic write: jobs inserted (one whose id exists is not inserted again), records kept, the schedule
        advanced, and the schedule's own jobs that must yield cancelled, or marked where they run. A move whose records
        lie after the shard's now is refused: never early. One answer each, in order.
        Jobs that break an invariant of the tables are not kept; their ticks are recorded as skipped, with the reason.
        """
        ...

    async def ticks(self, name: str, before: datetime | None, limit: int) -> list[TickRecord]:
        """The history, newest first, before an instant."""
        ...
