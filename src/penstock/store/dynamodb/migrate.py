"""The table as `penstock db` and the doctor see it: what is there, what is missing, and what cannot be mended."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from penstock.aws import AwsRefusal, AwsService
from penstock.model.clock import SystemClock
from penstock.model.errors import StoreUnavailable
from penstock.store.dynamodb import schema
from penstock.store.dynamodb.address import TableAddress
from penstock.store.dynamodb.schema import INDEX_KEYS
from penstock.store.dynamodb.statements import DIALECTS, Swap
from penstock.store.dynamodb.values import ItemKey

DEADLINE = timedelta(seconds=10)
TABLE, EXPIRY = "table", "expiry of rows"
INDEX_PAUSE = timedelta(seconds=1)
INDEX_LOOKS = 1800
"""An index of a table with many items takes minutes to be built, and only one is built at a time."""


class TableStatus(Struct, frozen=True):
    """The parts of a table: those it has, those that `migrate` adds, and what is another than ours."""

    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


@asynccontextmanager
async def connect(url: str) -> AsyncIterator["TableShape"]:
    """The table that a URL names. Nothing is asked yet."""
    service = await AwsService.open("dynamodb", error=StoreUnavailable, deadline=DEADLINE)
    try:
        yield TableShape(service, TableAddress.parse(url).table)
    finally:
        await service.close()


class TableShape:
    """Examines and completes one table."""

    def __init__(self, service: AwsService, name: str) -> None:
        self._service = service
        self.name = name

    @property
    def endpoint(self) -> str:
        return self._service.endpoint

    async def status(self) -> TableStatus:
        """Changes nothing."""
        found = await schema.describe(self._service, self.name)
        if found is None:
            return TableStatus(missing=(TABLE, *map(_index, INDEX_KEYS), EXPIRY))
        there = {one["IndexName"] for one in found.get("GlobalSecondaryIndexes", ())}
        parts = {_index(name): name in there for name in INDEX_KEYS} | {EXPIRY: await self._expires()}
        missing = tuple(name for name, present in parts.items() if not present)
        wrong = [one for one in schema.differences(found) if not any(f"no {name}" in one for name in missing)]
        return TableStatus((TABLE, *(name for name, present in parts.items() if present)), missing, tuple(wrong))

    async def migrate(self) -> TableStatus:
        """Add what is missing, and wait for it; the status before. Safe to repeat, and from many machines at once."""
        before = await self.status()
        if before.wrong:
            raise StoreUnavailable(
                f"table {self.name!r} is none of Penstock's: {'; '.join(before.wrong)}. Choose another name"
            )
        if TABLE in before.missing:
            await schema.create(self._service, self.name)
            return before
        for name in INDEX_KEYS:
            if _index(name) in before.missing:
                await self._add_index(name)
        if EXPIRY in before.missing:
            await schema.expire_rows(self._service, self.name)
        return before

    async def _add_index(self, name: str) -> None:
        wanted = schema.definition(self.name)
        (index,) = [one for one in wanted["GlobalSecondaryIndexes"] if one["IndexName"] == name]
        keys = [one for one in wanted["AttributeDefinitions"] if one["AttributeName"] in INDEX_KEYS[name]]
        try:
            await self._service.call(
                "UpdateTable",
                TableName=self.name,
                AttributeDefinitions=keys,
                GlobalSecondaryIndexUpdates=[{"Create": index}],
            )
        except AwsRefusal as refused:
            if refused.code not in {"ResourceInUseException", "ValidationException"}:
                raise StoreUnavailable(f"DynamoDB adds no index to table {self.name!r}: {refused}") from None
        await self._wait_for(name)

    async def _wait_for(self, index: str) -> None:
        clock = SystemClock()
        for _ in range(INDEX_LOOKS):
            found = await schema.describe(self._service, self.name) or {}
            states = {one["IndexName"]: one.get("IndexStatus") for one in found.get("GlobalSecondaryIndexes", ())}
            if states.get(index) == "ACTIVE":
                return
            if index not in states:
                break
            await clock.sleep(INDEX_PAUSE)
        raise StoreUnavailable(f"table {self.name!r} has no index {index!r} yet; look at it in the AWS console")

    async def _expires(self) -> bool:
        told = await self._service.call("DescribeTimeToLive", TableName=self.name)
        status = told.get("TimeToLiveDescription", {}).get("TimeToLiveStatus")
        return status in {"ENABLED", "ENABLING"}

    async def now(self) -> datetime | None:
        """The service's clock, to the second; None if it does not tell."""
        try:
            answer = await self._service.call("DescribeTable", TableName=self.name)
        except AwsRefusal as refused:
            answer = refused.answer
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        return None if date is None else parsedate_to_datetime(date)

    async def find_denied(self) -> list[str]:
        """What the credentials may not do, of all that a server asks of the table; each try changes nothing."""
        found = []
        for action, arguments in _tries(self.name):
            try:
                await self._service.call(action, **arguments)
            except AwsRefusal:
                continue
            except StoreUnavailable as error:
                found.append(error.message)
        return found


def _index(name: str) -> str:
    return f"index {name!r}"


def _tries(table: str) -> list[tuple[str, dict[str, Any]]]:
    """Reads of an item that is not there, and writes whose condition never holds."""
    key = {"pk": {"S": "penstock"}, "sk": {"S": "doctor"}}
    never = {"ConditionExpression": "attribute_exists(pk)"}
    at = {"TableName": table, "Key": key}
    update = {"UpdateExpression": "SET a = :a", "ExpressionAttributeValues": {":a": {"S": "a"}}}
    queries: list[tuple[str, dict[str, Any]]] = [
        (
            "Query",
            {
                "TableName": table,
                "Limit": 1,
                "KeyConditionExpression": "#key = :key",
                "ExpressionAttributeNames": {"#key": keys[0]},
                "ExpressionAttributeValues": {":key": {"S": "penstock"}},
                **({} if index is None else {"IndexName": index}),
            },
        )
        for index, keys in [(None, ("pk", "sk")), *INDEX_KEYS.items()]
    ]
    swap = Swap(ItemKey("penstock", "doctor"), {"a": "a"}, {"x": "never"})
    return [
        *queries,
        ("GetItem", at),
        ("BatchGetItem", {"RequestItems": {table: {"Keys": [key]}}}),
        ("PutItem", {"TableName": table, "Item": key, **never}),
        ("UpdateItem", at | never | update),
        ("DeleteItem", at | never),
        ("BatchWriteItem", {"RequestItems": {table: [{"DeleteRequest": {"Key": key}}]}}),
        ("BatchExecuteStatement", {"Statements": [DIALECTS[0].statement(table, swap)]}),
        ("TransactWriteItems", {"TransactItems": [{"ConditionCheck": at | never}, {"Delete": _other(at) | never}]}),
    ]


def _other(at: dict[str, Any]) -> dict[str, Any]:
    return at | {"Key": {"pk": {"S": "penstock"}, "sk": {"S": "doctor too"}}}
