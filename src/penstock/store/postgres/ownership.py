"""Which shard a database holds, and whether its server keeps what it acknowledges."""

import logging

from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.store.postgres.statements import Connection, execute, load, query

_SHARD = load("shard")
_FOUND_SHARD = load("found_shard")
_FOUND_ADMISSION = load("found_admission")
_FOUND_LINEAGE = load("found_lineage")
_FOUND_JOURNAL = load("found_journal")
_DURABILITY = load("durability")

logger = logging.getLogger(__name__)


async def take_ownership(connection: Connection, shard: ShardId, shown: str, given: int | None) -> None:
    """Record the shard's number in a new database; refuse one that holds another shard.

    `shown` names the database in messages. The identity of the database is recorded if it has none yet.
    """
    await execute(connection, _FOUND_SHARD, {"number": shard, "now": given})
    await execute(connection, _FOUND_ADMISSION)
    ((number,),) = await query(connection, _SHARD)
    if number != shard:
        raise StoreUnavailable(
            f"{shown} holds shard {number}, not {shard}: correct the shard map or choose another database"
        )
    await execute(connection, _FOUND_LINEAGE)


async def found_journal(connection: Connection, *, keep_events: bool) -> None:
    """Write down whether events are kept, for jobs that are submitted in SQL."""
    await execute(connection, _FOUND_JOURNAL, {"keep": keep_events})


async def warn_of_lost_commits(connection: Connection, shown: str) -> None:
    """Log each server setting that may lose acknowledged commits."""
    for name, setting in await query(connection, _DURABILITY):
        logger.warning(
            "%s has %s=%s: what it acknowledges may be lost with its machine; turn it on", shown, name, setting
        )
