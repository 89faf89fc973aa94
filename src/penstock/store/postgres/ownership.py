"""Which shard a database holds, and whether its server keeps what it acknowledges."""

import logging

from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.store.postgres.statements import Connection, execute, load, query

_SHARD = load("shard")
_FOUND_SHARD = load("found_shard")
_FOUND_ADMISSION = load("found_admission")
_FOUND_LINEAGE = load("found_lineage")
_DURABILITY = load("durability")

logger = logging.getLogger(__name__)


async def take_ownership(connection: Connection, shard: ShardId, shown: str, given: int | None) -> None:
    """Found the shard in a new database; refuse that of another one, whose ids would never be found here.

    `shown` names the database to people. What database this is, is remembered if nothing is yet.
    """
    await execute(connection, _FOUND_SHARD, {"number": shard, "now": given})
    await execute(connection, _FOUND_ADMISSION)
    ((number,),) = await query(connection, _SHARD)
    if number != shard:
        raise StoreUnavailable(
            f"{shown} holds shard {number}, not {shard}: correct the shard map or choose another database"
        )
    await execute(connection, _FOUND_LINEAGE)


async def warn_of_lost_commits(connection: Connection, shown: str) -> None:
    """Log each setting with which what the server acknowledges may be lost."""
    for name, setting in await query(connection, _DURABILITY):
        logger.warning(
            "%s has %s=%s: what it acknowledges may be lost with its machine; turn it on", shown, name, setting
        )
