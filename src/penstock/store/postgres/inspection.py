"""What can be seen of a shard's database without changing anything in it."""

from datetime import datetime

from msgspec import Struct

from penstock.model.ids import ShardId
from penstock.model.timing import from_millis
from penstock.store.postgres.migrate import Migration, connect, status
from penstock.store.postgres.statements import load, query

_SHARD = load("shard")
_SERVER = load("server")


class Inspection(Struct, frozen=True):
    """A database as it stands: which shard it holds, if any yet, what it lacks, and what its server says."""

    shard: ShardId | None
    pending: tuple[Migration, ...]
    writable: bool
    now: datetime


async def inspect(url: str) -> Inspection:
    """Read it in a transaction that could not write. StoreUnavailable if that or its use by this code is impossible."""
    async with connect(url) as connection, connection.transaction():
        await connection.execute(b"SET TRANSACTION READ ONLY")
        stands = await status(connection)
        ((writable, now),) = await query(connection, _SERVER)
        numbers = await query(connection, _SHARD) if stands.applied else []
    shard = next((ShardId(number) for (number,) in numbers), None)
    return Inspection(shard, stands.pending, writable, from_millis(now))
