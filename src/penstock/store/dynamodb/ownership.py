"""Opening the table: created or checked, the dialect tried, the clock set, and the shard's prefix taken."""

from datetime import timedelta

from penstock.aws import AwsRefusal, AwsService
from penstock.model.clock import Clock
from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.store.dynamodb import schema
from penstock.store.dynamodb.conditions import ABSENT
from penstock.store.dynamodb.keys import shard_prefix
from penstock.store.dynamodb.server_clock import GivenClock, ServerDate
from penstock.store.dynamodb.statements import DIALECTS, Dialect, Swap
from penstock.store.dynamodb.table import ConditionFailed, DynamoTable
from penstock.store.dynamodb.values import ItemKey

FORMAT = 1
"""Of the items; a table whose items are of a later one is refused."""


async def open_table(name: str, *, clock: Clock | None, deadline: timedelta, create: bool) -> DynamoTable:
    """The table, created as needed if that is allowed. StoreUnavailable if it lacks something or has another shape."""
    service = await AwsService.open("dynamodb", error=StoreUnavailable, deadline=deadline)
    try:
        await check_table(service, name, create=create)
        table = DynamoTable(service, name, ServerDate() if clock is None else GivenClock(clock), DIALECTS[0])
        table.dialect = await _find_dialect(table)
    except BaseException:
        await service.close()
        raise
    return table


async def check_table(service: AwsService, name: str, *, create: bool) -> None:
    found = await schema.describe(service, name)
    if found is None and create:
        await schema.create(service, name)
        return
    if found is None:
        raise StoreUnavailable(f"DynamoDB at {service.endpoint} has no table {name!r}: run `penstock db migrate`")
    if told := schema.differences(found):
        raise StoreUnavailable(f"table {name!r} is none of Penstock's: {'; '.join(told)}. Choose another name")


async def _find_dialect(table: DynamoTable) -> Dialect:
    """The dialect that the service takes, tried on an item that is not there: a refused condition is a yes."""
    probe = Swap(ItemKey("penstock", "dialect"), {"a": 1, "b": 1, "c": None, "d": None}, {"x": "never"})
    reason = ""
    for dialect in DIALECTS:
        try:
            answer = await table.call("BatchExecuteStatement", Statements=[dialect.statement(table.name, probe)])
        except AwsRefusal as refused:
            reason = str(refused)
            continue
        error = answer["Responses"][0].get("Error", {})
        if error.get("Code") != "ValidationError":
            return dialect
        reason = str(error.get("Message"))
    raise StoreUnavailable(f"DynamoDB takes no update of several attributes in a batch: {reason}")


async def take_prefix(table: DynamoTable, shard: ShardId) -> str:
    """The shard's prefix, written down with the format of its items; refuse one that is of a later format."""
    prefix = shard_prefix(shard)
    try:
        await table.put({"pk": f"{prefix}shard", "sk": "shard", "number": shard, "format": FORMAT}, ABSENT)
    except ConditionFailed as failed:
        there = failed.old or {}
        if there.get("number") != shard:
            raise StoreUnavailable(
                f"table {table.name!r} holds shard {there.get('number')} in place of {shard}: correct the shard map or "
                "choose another table"
            ) from None
        if there.get("format", 0) > FORMAT:
            raise StoreUnavailable(
                f"shard {shard} in table {table.name!r} was written by a newer Penstock; upgrade this one"
            ) from None
    return prefix
