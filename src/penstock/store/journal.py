"""The journal of a shard: every move, in order, to be read by relays and streams; the history, and the relays' state.

Entries are written by the statements that move jobs, so that there is one for every move that is durable and none for
another. They are numbered once they are visible: a reader that has all numbers up to one has missed nothing, whatever
commits later. A backend whose moves write one item each (DynamoDB) keeps in the job's own item what is not in the
journal yet, with a sparse index over such jobs; `number_entries` copies it to entries and clears it, if the job has
not moved.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from penstock.model.ids import JobId
from penstock.model.journal import (
    DeliveryRecord,
    EventRetention,
    History,
    HistoryFilter,
    JournalPage,
    Parked,
    ParkedState,
    RelayState,
    RelayTotals,
    RelayWrite,
)


class Journal(Protocol):
    """What every move did, since the retention began. With `keep_events` off there are no entries and no history."""

    @property
    def keeps_events(self) -> bool:
        """Whether moves are written to the journal."""
        ...

    async def number_entries(self) -> int:
        """Give numbers to entries that have become visible, and add them to counts and history; the greatest number.

        Cheap when there are none. While another process numbers, it returns at once. Called before each read, and by
        each scheduler every second.
        """
        ...

    async def read_journal(self, after: int, limit: int) -> JournalPage:
        """Entries with a number above `after`, in order, as many as hold about `limit` events; one at least.

        Numbers without an entry are of prunes, which are no events: with no entries in the page, all up to its `head`
        is read.
        """
        ...

    async def find_number(self, at: datetime) -> int:
        """The number of the last entry before an instant; of those that are gone, the last."""
        ...

    async def read_history(self, where: HistoryFilter) -> History:
        """The numbered moves of spans, and the counts that belong to them, of one instant, by the filter."""
        ...

    async def prune_journal(self, keep: EventRetention, limit: int) -> int:
        """Delete about `limit` entries, delivery records and history rows past their retention, of each; how many.

        Also folds the history by `FOLDS`, which removes rows too. No sum changes, and no number is given again.
        """
        ...


class Relays(Protocol):
    """The state of this shard's relays: one for each subscription. Only the holder of its role may write it.

    `subscription` is its `relay_name`.
    """

    async def relay_state(self, subscription: str) -> RelayState: ...

    async def save_relay(self, subscription: str, fence: int, write: RelayWrite) -> bool:
        """Store all of it, if the role `relay/<subscription>` still has this fence; False, and nothing, if not.

        A position never goes back; None leaves it. An event that is parked already gets the new values. Successes that
        follow the last record of the log, if that is a success too, extend it: it gets their time, last id and status.
        """
        ...

    async def park_again(self, subscription: str, events: Sequence[Parked]) -> None:
        """Park events to be delivered (again), asked for by a user: no fence.

        Those without a due time are due now. An event that is parked, dead or alive, gets these values.
        """
        ...

    async def read_parked(
        self, subscription: str, state: ParkedState, limit: int, due_before: datetime | None = None
    ) -> list[Parked]:
        """By due time (those without one last), job and version; with `due_before`, only those that are due before."""
        ...

    async def read_parked_of(self, subscription: str, jobs: Sequence[JobId]) -> list[Parked]:
        """The waiting events of these jobs, by job and version."""
        ...

    async def deliveries(self, subscription: str, before: datetime | None, limit: int) -> list[DeliveryRecord]:
        """The delivery log, newest first."""
        ...

    async def relay_totals(self, subscription: str) -> RelayTotals: ...

    async def drop_relay(self, subscription: str) -> None:
        """Forget everything about a subscription that was deleted."""
        ...


def relay_role(subscription: str) -> str:
    """The role that the one relay of a subscription holds on a shard."""
    return f"relay/{subscription}"
