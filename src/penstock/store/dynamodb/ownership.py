"""Opening the table: created or checked, and the shard's prefix taken."""

from datetime import timedelta

from penstock.aws import AwsService
from penstock.model.clock import Clock
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.store.dynamodb import schema
from penstock.store.dynamodb.conditions import ABSENT
from penstock.store.dynamodb.keys import shard_prefix
from penstock.store.dynamodb.server_clock import GivenClock, ServerDate
from penstock.store.dynamodb.table import ConditionFailed, DynamoTable
from penstock.store.dynamodb.values import Item, ItemKey

FORMAT = 1
"""Of the items; a table whose items are of a later one is refused."""


async def open_table(name: str, *, clock: Clock | None, deadline: timedelta, create: bool) -> DynamoTable:
    """The table, created as needed if that is allowed. StoreUnavailable if it lacks something or has another shape."""
    service = await AwsService.open("dynamodb", error=StoreUnavailable, deadline=deadline)
    try:
        await check_table(service, name, create=create)
    except BaseException:
        await service.close()
        raise
    return DynamoTable(service, name, ServerDate() if clock is None else GivenClock(clock))


async def check_table(service: AwsService, name: str, *, create: bool) -> None:
    found = await schema.describe(service, name)
    if found is None and create:
        await schema.create(service, name)
        return
    if found is None:
        raise StoreUnavailable(f"DynamoDB at {service.endpoint} has no table {name!r}: run `penstock db migrate`")
    if told := schema.differences(found):
        raise StoreUnavailable(f"table {name!r} is none of Penstock's: {'; '.join(told)}. Choose another name")


async def take_prefix(table: DynamoTable, shard: ShardId) -> str:
    """The shard's prefix, written down with the format of its items; refuse one that is of a later format.

    It is looked for first: a process that only reads may have no right to write.
    """
    prefix = shard_prefix(shard)
    key = ItemKey(f"{prefix}shard", "shard")
    if (there := await table.get(key)) is None:
        try:
            await table.put({"pk": key.pk, "sk": key.sk, "number": shard, "format": FORMAT}, ABSENT)
        except ConditionFailed as failed:
            there = failed.old or {}
    if there is not None:
        _check_owner(table.name, shard, there)
    return prefix


def _check_owner(table: str, shard: ShardId, there: Item) -> None:
    if there.get("number") != shard:
        raise StoreUnavailable(
            f"table {table!r} holds shard {there.get('number')} in place of {shard}: correct the shard map or choose "
            "another table"
        )
    if there.get("format", 0) > FORMAT:
        raise StoreUnavailable(f"shard {shard} in table {table!r} was written by a newer Penstock; upgrade this one")
