"""The epoch of a shard: raised by hand after its file was put back from a backup.

A file cannot tell by itself: what was beside it may have been put back with it, and a copy that was made while a server
ran has everything that the server had written by then.
"""

import logging

from penstock.model.fences import next_epoch
from penstock.store.sqlite.statements import load, query
from penstock.store.sqlite.sweeps import expire_tickets
from penstock.store.sqlite.transaction import SqliteTransaction

_EPOCH, _SET_EPOCH = load("epoch"), load("set_epoch")
_FENCE_OFF = load("fence_off")

logger = logging.getLogger(__name__)


def raise_epoch(tx: SqliteTransaction) -> None:
    """End the leases of all that runs: no fence from before counts any more."""
    ((before,),) = query(tx.connection, _EPOCH)
    epoch = next_epoch(before, tx.at)
    tx.connection.execute(_SET_EPOCH, {"epoch": epoch})
    tx.connection.execute(_FENCE_OFF, {"epoch": epoch, "now": tx.now})
    running = tx.connection.changes()
    expire_tickets(tx, None)
    logger.warning("the shard's epoch is %d now, and %d running jobs start again", epoch, running)
