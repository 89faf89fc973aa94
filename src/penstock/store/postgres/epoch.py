"""The epoch of a shard: raised once in a database that was restored or failed over, before any fence counts there.

`penstock.fenced_clock` compares the database with what is recorded in each statement that shows or gives a fence: also
behind PgBouncer, where a connection outlives the server that it led to. What that cannot tell, a cluster that was put
back to a snapshot, is told by a process that has seen it further on.
"""

import logging
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from penstock.model.errors import Conflict, StoreUnavailable
from penstock.store.postgres.registry import hold_admission
from penstock.store.postgres.statements import Connection, PostgresTransaction, execute, in_transaction, load, query
from penstock.store.postgres.sweeps import expire_tickets

_RAISE_EPOCH = load("raise_epoch")
_FENCE_OFF = load("fence_off")
_POSITION = load("position")

WAL_PAGE_BYTES = 8192
"""How far a server that crashed may be behind the position it reported: it had flushed part of a record."""

logger = logging.getLogger(__name__)


class WalPosition(Struct, frozen=True):
    """The WAL position of a cluster in bytes, and the epoch of the shard; None where the server does not tell."""

    flushed: int | None
    epoch: int

    def is_before(self, known: "WalPosition") -> bool:
        """Whether the cluster has gone back since it was at `known`, and its epoch was not raised since."""
        if self.flushed is None or known.flushed is None:
            return False
        return self.flushed + WAL_PAGE_BYTES < known.flushed and self.epoch <= known.epoch


class EpochWatch:
    """Detects that the shard was restored: remembers its WAL position, compares it, and raises the epoch."""

    def __init__(self, given: Callable[[], int | None]) -> None:
        self._given = given
        self._known: WalPosition | None = None

    async def check(self, connection: Connection) -> None:
        """On each new connection and with each probe: raise the epoch of a cluster that was put back to a snapshot."""
        seen = await self._read(connection)
        if self._known is not None and seen.is_before(self._known):
            await self.follow(connection, seen.epoch)
            seen = await self._read(connection)
        self._known = seen

    async def follow(self, connection: Connection, stale: int | None = None) -> None:
        """Raise the epoch of a database that was restored, unless another process has."""
        try:
            await in_transaction(connection, self._given(), partial(raise_epoch, stale=stale))
        except Conflict as held:
            raise StoreUnavailable(held.message) from held

    async def _read(self, connection: Connection) -> WalPosition:
        ((flushed, epoch),) = await query(connection, _POSITION)
        return WalPosition(flushed, epoch)


async def raise_epoch(tx: PostgresTransaction, *, restored: bool = False, stale: int | None = None) -> None:
    """End the leases of all that runs, if the database is another than before, is `restored`, or has the `stale` epoch.

    Otherwise another process has done it.
    """
    await hold_admission(tx)
    scope = {"now": tx.test_now, "restored": restored, "stale": stale}
    for (epoch,) in await query(tx.connection, _RAISE_EPOCH, scope):
        running = await execute(tx.connection, _FENCE_OFF, {"epoch": epoch, "now": tx.now})
        # The broker may have lost these tickets, or given them to workers whose claims are lost.
        await expire_tickets(tx, None)
        logger.warning(
            "the database was restored or failed over: the shard's epoch is %d now, and %d running jobs start again",
            epoch,
            running,
        )
