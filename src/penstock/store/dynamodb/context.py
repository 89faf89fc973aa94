"""What the moves of one shard share."""

from collections.abc import Sequence

from msgspec import Struct

from penstock.model.ids import ShardId
from penstock.model.job import Retention
from penstock.store.dynamodb.admission import Admissions
from penstock.store.dynamodb.conditions import ItemCondition, Part, Update, update_part
from penstock.store.dynamodb.ended_jobs import EndedCounts, expire_beside
from penstock.store.dynamodb.heads import Heads, changes
from penstock.store.dynamodb.insertions import Inserter
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.jobs import JobReader
from penstock.store.dynamodb.moves import Moves
from penstock.store.dynamodb.sheets import Sheets
from penstock.store.dynamodb.table import DynamoTable


class ShardContext(Struct, frozen=True):
    """The table with one shard's prefix, and what reads and changes its jobs."""

    table: DynamoTable
    shard: ShardId
    prefix: str
    retention: Retention
    moves: Moves
    heads: Heads
    sheets: Sheets
    jobs: JobReader
    inserter: Inserter
    admissions: Admissions
    ended: EndedCounts

    @property
    def now(self) -> int:
        return self.table.clock.now()

    async def record_ends(self, heads: Sequence[Head]) -> None:
        """Count the jobs that have ended, and let what lies beside them expire."""
        self.ended.add(heads)
        await expire_beside(self.table, self.prefix, heads)

    def swap_part(self, before: Head, after: Head) -> Part:
        """A swap as part of a transaction."""
        condition = ItemCondition("x = :seen", seen=before.token)
        return update_part(Update(after.key, changes(self.prefix, before, after), condition=condition))


def new_context(
    table: DynamoTable, shard: ShardId, prefix: str, admissions: Admissions, *, keep_events: bool, retention: Retention
) -> ShardContext:
    heads, sheets = Heads(table, shard), Sheets(table, prefix)
    return ShardContext(
        table=table,
        shard=shard,
        prefix=prefix,
        retention=retention,
        moves=Moves(keep_events, retention),
        heads=heads,
        sheets=sheets,
        jobs=JobReader(table, heads, sheets),
        inserter=Inserter(prefix, keep_events=keep_events),
        admissions=admissions,
        ended=EndedCounts(table, prefix, retention),
    )
