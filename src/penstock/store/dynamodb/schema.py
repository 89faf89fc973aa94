"""The one table of the store: its keys and indexes, how it is created, and whether one that exists has this shape.

    index     partition key                     sort key          projection
    (table)   pk                                sk                all
    place     gp: where a job waits or runs     gs                what sweeps and counts need
    age       ap: the shard                     aq: order of age  queue, type, whether it has a key
    untold    up: the shard                     uq                keys only

All indexes are sparse: an item without the partition key of one is not in it.
"""

from datetime import timedelta
from typing import Any

from penstock.aws import AwsRefusal, AwsService
from penstock.model.clock import SystemClock
from penstock.model.errors import StoreUnavailable

PLACE, AGE, UNTOLD = "place", "age", "untold"
TTL = "ttl"

INDEX_KEYS = {PLACE: ("gp", "gs"), AGE: ("ap", "aq"), UNTOLD: ("up", "uq")}
"""The partition key and the sort key of each index; all of them are text."""

PLACE_ATTRIBUTES = ("st", "q", "t", "pr", "due", "un", "w", "f", "ex", "sq")
AGE_ATTRIBUTES = ("q", "t", "k")

PROJECTIONS: dict[str, dict[str, Any]] = {
    PLACE: {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(PLACE_ATTRIBUTES)},
    AGE: {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(AGE_ATTRIBUTES)},
    UNTOLD: {"ProjectionType": "KEYS_ONLY"},
}

CREATION_PAUSE = timedelta(milliseconds=200)
CREATION_LOOKS = 300
"""A table of AWS takes some ten seconds to become active; an emulator's is so at once."""


def definition(name: str) -> dict[str, Any]:
    """The arguments of CreateTable."""
    names = ["pk", "sk", *(key for keys in INDEX_KEYS.values() for key in keys)]
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": one, "AttributeType": "S"} for one in names],
        "KeySchema": _key_schema("pk", "sk"),
        "GlobalSecondaryIndexes": [
            {"IndexName": index, "KeySchema": _key_schema(*keys), "Projection": PROJECTIONS[index]}
            for index, keys in INDEX_KEYS.items()
        ],
    }


def _key_schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


async def describe(service: AwsService, name: str) -> dict[str, Any] | None:
    """The table as AWS describes it; None if there is none."""
    try:
        found: dict[str, Any] = (await service.call("DescribeTable", TableName=name))["Table"]
    except AwsRefusal as refused:
        if refused.code == "ResourceNotFoundException":
            return None
        raise StoreUnavailable(f"DynamoDB refuses to describe table {name!r}: {refused}") from None
    return found


async def create(service: AwsService, name: str) -> None:
    """Create the table and wait until it can be used; one that another process creates meanwhile is as good."""
    try:
        await service.call("CreateTable", **definition(name))
    except AwsRefusal as refused:
        if refused.code != "ResourceInUseException":
            raise StoreUnavailable(f"DynamoDB cannot create table {name!r}: {refused}") from None
    clock = SystemClock()
    for _ in range(CREATION_LOOKS):
        found = await describe(service, name)
        if found is not None and found["TableStatus"] == "ACTIVE":
            return await expire_rows(service, name)
        await clock.sleep(CREATION_PAUSE)
    raise StoreUnavailable(f"table {name!r} was created and has not become active; look at it in the AWS console")


async def expire_rows(service: AwsService, name: str) -> None:
    """Let DynamoDB delete items once the second in their attribute `ttl` has passed."""
    told = await service.call("DescribeTimeToLive", TableName=name)
    if told.get("TimeToLiveDescription", {}).get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}:
        return
    try:
        await service.call(
            "UpdateTimeToLive", TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL}
        )
    except AwsRefusal as refused:
        # Another process that creates the table has enabled it just now.
        if refused.code != "ValidationException":
            raise StoreUnavailable(f"table {name!r} cannot expire its rows: {refused}") from None


def differences(found: dict[str, Any]) -> list[str]:
    """In which way a table is not the one that `definition` describes; empty if it can be used."""
    wanted = definition(found["TableName"])
    told = []
    if _keys(found) != _keys(wanted):
        told.append("its primary key is not pk and sk")
    indexes = {index["IndexName"]: index for index in found.get("GlobalSecondaryIndexes", ())}
    for index in wanted["GlobalSecondaryIndexes"]:
        there = indexes.get(index["IndexName"])
        if there is None:
            told.append(f"it has no index {index['IndexName']!r}")
        elif _keys(there) != _keys(index):
            told.append(f"its index {index['IndexName']!r} has other keys")
        elif not _projects(there["Projection"], index["Projection"]):
            told.append(f"its index {index['IndexName']!r} lacks attributes")
    kinds = {one["AttributeName"]: one["AttributeType"] for one in found["AttributeDefinitions"]}
    told += [f"its attribute {name!r} is not text" for name, kind in kinds.items() if kind != "S"]
    return told


def _keys(schema: dict[str, Any]) -> dict[str, str]:
    return {one["KeyType"]: one["AttributeName"] for one in schema["KeySchema"]}


def _projects(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if found["ProjectionType"] == "ALL":
        return True
    return set(wanted.get("NonKeyAttributes", ())) <= set(found.get("NonKeyAttributes", ()))
