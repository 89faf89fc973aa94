"""The operations on the table: each is one call or a few, with typed answers, and the capacity they consumed.

A refused condition is an answer here, never an outage. What may pass is StoreUnavailable: then the write may have been
done or not, and the caller has to look.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from penstock.aws import AwsRefusal, AwsService
from penstock.model.clock import SystemClock
from penstock.model.errors import StoreUnavailable, TooLarge
from penstock.store.dynamodb.conditions import ItemCondition, Part, Update, bind
from penstock.store.dynamodb.schema import INDEX_KEYS
from penstock.store.dynamodb.server_clock import TableClock
from penstock.store.dynamodb.statements import DIALECTS, PROBE, Dialect, Insert, Write
from penstock.store.dynamodb.values import (
    ITEM_BYTES_MAX,
    Item,
    ItemKey,
    decode_item,
    encode_item,
    encode_key,
    key_of,
    size_of,
)

BATCH_KEYS = 100
BATCH_STATEMENTS = 25
TRANSACTION_PARTS = 100
"""The most that AWS takes in one call."""

ATTEMPTS = 4
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Waits before the rest of a batch is asked again, in seconds."""

_REFUSED = frozenset({"ConditionalCheckFailed", "ConditionalCheckFailedException", "DuplicateItem"})
_PASSING = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
    }
)

T = TypeVar("T")


class ConditionFailed(Exception):
    """A write was refused by its condition. `old` is the item as it is instead; None if there is none."""

    def __init__(self, old: Item | None) -> None:
        super().__init__("the condition of a write does not hold")
        self.old = old


class TransactionRefused(Exception):
    """No part of a transaction was done. `reasons` has AWS's code for each part, None for those that were not why.

    `olds` are the items of parts whose condition failed.
    """

    def __init__(self, reasons: Sequence[str | None], olds: Sequence[Item | None]) -> None:
        super().__init__(f"a transaction was refused: {', '.join(filter(None, reasons))}")
        self.reasons = reasons
        self.olds = olds

    @property
    def conflict(self) -> bool:
        """Whether no condition failed: another write was under way, and the same transaction may succeed now."""
        return all(reason in {None, "TransactionConflict"} for reason in self.reasons)


class SortRange(Struct, frozen=True):
    """Which sort keys of a partition: those that begin with `prefix`, or lie in [`least`, `most`], or after `after`."""

    prefix: str | None = None
    least: str | None = None
    most: str | None = None
    after: str | None = None

    def text(self, name: str) -> tuple[str, dict[str, Any]]:
        if self.prefix is not None:
            return f" AND begins_with(#{name}, :prefix)", {"prefix": self.prefix}
        if self.after is not None:
            return f" AND #{name} > :after", {"after": self.after}
        if self.least is not None and self.most is not None:
            return f" AND #{name} BETWEEN :least AND :most", {"least": self.least, "most": self.most}
        if self.most is not None:
            return f" AND #{name} <= :most", {"most": self.most}
        return (f" AND #{name} >= :least", {"least": self.least}) if self.least is not None else ("", {})


ALL = SortRange()


class QueryPage(Struct, frozen=True):
    """Items of one answer, and where the next begins; None at the end."""

    items: list[Item]
    next: dict[str, Any] | None


class DynamoTable:
    """One table. `bill`, when set, sums up what each action consumed, as AWS counts it."""

    def __init__(self, service: AwsService, name: str, clock: TableClock) -> None:
        self.name = name
        self.clock = clock
        self.bill: dict[str, float] | None = None
        self.service = service
        self._dialect: Dialect | None = None
        self._timer = SystemClock()
        self._rng = random.Random()

    async def call(self, action: str, **arguments: Any) -> dict[str, Any]:
        """One API action; AwsRefusal for what the service refuses. Every answer sets the clock."""
        if self.bill is not None:
            arguments["ReturnConsumedCapacity"] = "TOTAL"
        sent = self._timer.monotonic()
        try:
            answer = await self.service.call(action, **arguments)
        except AwsRefusal as refused:
            self._observe(refused.answer, sent)
            if refused.code == "ResourceNotFoundException":
                raise StoreUnavailable(f"DynamoDB has no table {self.name!r}: run `penstock db migrate`") from None
            raise
        self._observe(answer, sent)
        self._charge(action, answer)
        return answer

    def _observe(self, answer: dict[str, Any], sent: float) -> None:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is not None:
            self.clock.observe(date, sent, self._timer.monotonic())

    def _charge(self, action: str, answer: dict[str, Any]) -> None:
        if self.bill is not None:
            consumed = answer.get("ConsumedCapacity") or ()
            units = sum(one["CapacityUnits"] for one in ([consumed] if isinstance(consumed, dict) else consumed))
            self.bill[action] = self.bill.get(action, 0.0) + units

    # -- one item

    async def get(self, key: ItemKey) -> Item | None:
        """The item as of now; None if there is none."""
        answer = await self.call("GetItem", TableName=self.name, Key=encode_key(key), ConsistentRead=True)
        return decode_item(answer["Item"]) if answer.get("Item") else None

    async def put(self, item: Item, condition: ItemCondition | None = None) -> None:
        """Put an item; ConditionFailed with the present one."""
        check_size(item)
        await self._write("PutItem", {"Item": encode_item(item)} | _guard(condition))

    async def update(self, update: Update, *, returns: str = "ALL_NEW") -> Item:
        """Change an item, or create it; as it is afterwards (`ALL_NEW`) or was before (`ALL_OLD`)."""
        answer = await self._write("UpdateItem", update.arguments() | {"ReturnValues": returns})
        return decode_item(answer.get("Attributes") or {})

    async def delete(self, key: ItemKey, condition: ItemCondition | None = None) -> Item | None:
        """Delete an item; what it was, None if there was none."""
        arguments = {"Key": encode_key(key), "ReturnValues": "ALL_OLD"} | _guard(condition)
        answer = await self._write("DeleteItem", arguments)
        return decode_item(answer["Attributes"]) if answer.get("Attributes") else None

    async def _write(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if "ConditionExpression" in arguments:
            arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        for attempt in range(ATTEMPTS):
            try:
                return await self.call(action, TableName=self.name, **arguments)
            except AwsRefusal as refused:
                if refused.code in _REFUSED:
                    old = refused.answer.get("Item")
                    raise ConditionFailed(decode_item(old) if old else None) from None
                if refused.code != "TransactionConflictException":
                    raise
                await self._pause(attempt)
        raise StoreUnavailable(f"transactions hold an item of table {self.name!r} all the time; retry")

    # -- many items

    async def batch_get(self, keys: Iterable[ItemKey], *, attributes: Sequence[str] = ()) -> dict[ItemKey, Item]:
        """Those of the items that there are, as of now; with `attributes` only these and the keys."""
        chunks = chunked(list(dict.fromkeys(keys)), BATCH_KEYS)
        found = await asyncio.gather(*(self._batch_get(chunk, attributes) for chunk in chunks))
        return {key_of(item): item for items in found for item in items}

    async def _batch_get(self, keys: Sequence[ItemKey], attributes: Sequence[str]) -> list[Item]:
        asked: dict[str, Any] = {"Keys": [encode_key(key) for key in keys], "ConsistentRead": True}
        if attributes:
            names = dict.fromkeys(("pk", "sk", *attributes))
            asked["ProjectionExpression"] = ", ".join(f"#{name}" for name in names)
            asked["ExpressionAttributeNames"] = {f"#{name}": name for name in names}
        items: list[Item] = []
        left: dict[str, Any] = {self.name: asked}
        for attempt in range(ATTEMPTS):
            answer = await self.call("BatchGetItem", RequestItems=left)
            items += [decode_item(item) for item in answer["Responses"].get(self.name, ())]
            left = answer.get("UnprocessedKeys") or {}
            if not left:
                return items
            await self._pause(attempt)
        raise StoreUnavailable(f"DynamoDB does not read all of a batch from table {self.name!r} now; retry")

    async def put_all(self, items: Sequence[Item]) -> None:
        """Put items without a condition; each key may be there once."""
        for item in items:
            check_size(item)
        await asyncio.gather(*(self._put_all(chunk) for chunk in chunked(items, BATCH_STATEMENTS)))

    async def _put_all(self, items: Sequence[Item]) -> None:
        left: dict[str, Any] = {self.name: [{"PutRequest": {"Item": encode_item(item)}} for item in items]}
        for attempt in range(ATTEMPTS):
            left = (await self.call("BatchWriteItem", RequestItems=left)).get("UnprocessedItems") or {}
            if not left:
                return
            await self._pause(attempt)
        raise StoreUnavailable(f"DynamoDB does not take all of a batch for table {self.name!r} now; retry")

    async def execute(self, writes: Sequence[Write]) -> list[bool]:
        """Do each write by itself; whether each was done, in order. False: refused by its condition.

        Of one that was repeated after a lost answer, False may mean that it was done before: the caller has to look.
        """
        for write in writes:
            check_size(write.item if isinstance(write, Insert) else write.sets)
        chunks = chunked(writes, BATCH_STATEMENTS)
        answers = await asyncio.gather(*(self._execute(chunk) for chunk in chunks))
        return [answer for chunk in answers for answer in chunk]

    async def _execute(self, writes: Sequence[Write]) -> list[bool]:
        dialect = self._dialect = self._dialect or await self._find_dialect()
        done: dict[int, bool] = {}
        reason = ""
        for attempt in range(ATTEMPTS):
            left = [position for position in range(len(writes)) if position not in done]
            statements = [dialect.statement(self.name, writes[position]) for position in left]
            answer = await self.call("BatchExecuteStatement", Statements=statements)
            for position, one in zip(left, answer["Responses"], strict=True):
                code = one.get("Error", {}).get("Code")
                if code not in _PASSING:
                    done[position] = _judge(self.name, one.get("Error"))
                else:
                    reason = code
            if len(done) == len(writes):
                return [done[position] for position in range(len(writes))]
            await self._pause(attempt)
        raise StoreUnavailable(f"DynamoDB does not take all writes to table {self.name!r} now ({reason}); retry")

    async def _find_dialect(self) -> Dialect:
        """The dialect that the service takes, tried on an item that is not there: a refused condition is a yes.

        Not before the first batch: a process that only reads may have no right to write.
        """
        reason = ""
        for dialect in DIALECTS:
            try:
                answer = await self.call("BatchExecuteStatement", Statements=[dialect.statement(self.name, PROBE)])
            except AwsRefusal as refused:
                reason = str(refused)
                continue
            error = answer["Responses"][0].get("Error", {})
            if error.get("Code") in _PASSING:
                raise StoreUnavailable(f"DynamoDB does not take writes to table {self.name!r} now; retry")
            if error.get("Code") != "ValidationError":
                return dialect
            reason = str(error.get("Message"))
        raise StoreUnavailable(f"DynamoDB takes no update of several attributes in a batch: {reason}")

    async def transact(self, parts: Sequence[Part], token: str) -> None:
        """Do all parts or none; TransactionRefused if a condition fails. The token makes a repetition harmless."""
        items = [{part.action: self._part(part)} for part in parts]
        for attempt in range(ATTEMPTS):
            try:
                await self.call("TransactWriteItems", TransactItems=items, ClientRequestToken=token)
            except AwsRefusal as refused:
                error = _transaction_error(refused)
                if not error.conflict or attempt == ATTEMPTS - 1:
                    raise error from None
                await self._pause(attempt)
            else:
                return

    def _part(self, part: Part) -> dict[str, Any]:
        guarded = "ConditionExpression" in part.arguments
        returned = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if guarded else {}
        return {"TableName": self.name} | part.arguments | returned

    # -- queries

    async def query(
        self,
        partition: str,
        span: SortRange = ALL,
        *,
        index: str | None = None,
        limit: int | None = None,
        start: dict[str, Any] | None = None,
        forward: bool = True,
        count: bool = False,
    ) -> QueryPage:
        """A page of a partition in the order of its sort keys, at most 1 MB or `limit` items.

        Of the table as of now; of an index (`place`, `age`, `untold`) as it was up to about a second ago. With `count`
        only the number of items, as the item `{"count": …}`.
        """
        hash_name, sort_name = ("pk", "sk") if index is None else INDEX_KEYS[index]
        more, values = span.text(sort_name)
        text = f"#{hash_name} = :partition{more}"
        arguments: dict[str, Any] = {"KeyConditionExpression": text, **bind(text, {"partition": partition, **values})}
        arguments |= {"ConsistentRead": True} if index is None else {"IndexName": index}
        arguments |= {"Limit": limit} if limit is not None else {}
        arguments |= {"ExclusiveStartKey": start} if start is not None else {}
        arguments |= {"Select": "COUNT"} if count else {}
        answer = await self.call("Query", TableName=self.name, ScanIndexForward=forward, **arguments)
        items = [{"count": answer["Count"]}] if count else [decode_item(item) for item in answer["Items"]]
        return QueryPage(items, answer.get("LastEvaluatedKey"))

    async def walk(
        self, partition: str, span: SortRange = ALL, *, index: str | None = None, forward: bool = True, page: int = 1000
    ) -> AsyncIterator[Item]:
        """All items of a partition, page after page."""
        start: dict[str, Any] | None = None
        while True:
            found = await self.query(partition, span, index=index, start=start, forward=forward, limit=page)
            for item in found.items:
                yield item
            if (start := found.next) is None:
                return

    async def _pause(self, attempt: int) -> None:
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)
        await self._timer.sleep(timedelta(seconds=self._rng.uniform(longest / 2, longest)))

    async def close(self) -> None:
        await self.service.close()


def check_size(item: Mapping[str, Any]) -> None:
    """Raise TooLarge for what no item can hold, before it is sent."""
    size = size_of(item)
    if size > ITEM_BYTES_MAX:
        raise TooLarge(
            f"{size} bytes do not fit into an item of DynamoDB, which holds {ITEM_BYTES_MAX}: set objects.inline_max "
            "lower, so that large values go to the object store"
        )


def chunked(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _guard(condition: ItemCondition | None) -> dict[str, Any]:
    return {} if condition is None else condition.arguments()


def _judge(table: str, error: dict[str, Any] | None) -> bool:
    if error is None:
        return True
    if error.get("Code") in _REFUSED:
        return False
    _fail(table, error)


def _fail(table: str, error: dict[str, Any]) -> NoReturn:
    code, message = error.get("Code"), error.get("Message", "")
    if code in {"AccessDenied", "AccessDeniedException"}:
        raise StoreUnavailable(
            f"AWS denies a write to table {table!r}: allow the PartiQL actions in the policy. {message}"
        )
    raise StoreUnavailable(f"DynamoDB refuses a write to table {table!r} ({code}): {message}")


def _transaction_error(refused: AwsRefusal) -> TransactionRefused:
    if refused.code == "TransactionConflictException":
        return TransactionRefused(["TransactionConflict"], [None])
    if refused.code == "TransactionInProgressException":
        raise StoreUnavailable("DynamoDB still works on an earlier sending of this transaction; retry") from None
    if refused.code != "TransactionCanceledException":
        raise refused
    reasons = refused.answer.get("CancellationReasons", ())
    codes = [None if one.get("Code") in {None, "None"} else str(one["Code"]) for one in reasons]
    passing = {"ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded", "InternalServerError"}
    if passing & set(codes):
        raise StoreUnavailable(f"DynamoDB does not take a transaction now ({', '.join(filter(None, codes))})") from None
    return TransactionRefused(codes, [decode_item(one["Item"]) if one.get("Item") else None for one in reasons])
