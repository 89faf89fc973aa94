"""`penstock db` for shards in DynamoDB: what their tables have and lack."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from penstock.cli import style
from penstock.cli.process import run
from penstock.model.extras import require
from penstock.model.shards import ShardMember

if TYPE_CHECKING:
    from penstock.store.dynamodb.migrate import TableShape, TableStatus

T = TypeVar("T")


def is_table(shard: ShardMember) -> bool:
    return urlsplit(shard.url).scheme == "dynamodb"


def table_name(shard: ShardMember) -> str:
    return f"{shard.number} in table {urlsplit(shard.url).netloc}"


def read_status(shards: Sequence[ShardMember]) -> list[tuple[ShardMember, "TableStatus"]]:
    """What the table of each shard has and lacks."""
    return _run_on_each(shards, lambda table: table.status())


def migrate_tables(shards: Sequence[ShardMember]) -> list[tuple[ShardMember, "TableStatus"]]:
    """Add what each table lacks; its status before. Shards may share one."""
    return _run_on_each(shards, lambda table: table.migrate())


def rows_of(shard: ShardMember, status: "TableStatus") -> list[tuple[str, str, str]]:
    """For people: the parts of a table, and the state of each."""
    name = table_name(shard)
    return [
        *((name, part, "present") for part in status.present),
        *((name, part, style.warned("missing")) for part in status.missing),
        *((name, part, style.bad("not ours")) for part in status.wrong),
    ]


def _run_on_each(
    shards: Sequence[ShardMember], act: Callable[["TableShape"], Awaitable[T]]
) -> list[tuple[ShardMember, T]]:
    if not shards:
        return []
    require("aws")
    return run(_act_on_each(shards, act))


async def _act_on_each(
    shards: Sequence[ShardMember], act: Callable[["TableShape"], Awaitable[T]]
) -> list[tuple[ShardMember, T]]:
    from penstock.store.dynamodb.migrate import connect

    answers = []
    for shard in shards:
        async with connect(shard.url) as table:
            answers.append((shard, await act(table)))
    return answers
