"""The units of DynamoDB that docs/guides/aws-costs.md counts with are those that the lives of jobs consume.

dynoxide counts them as AWS does, index by index. A plain loop, as a table and a queue alone give it, is measured
beside Penstock.
"""

from typing import Any

import pytest

from penstock.aws import AwsService
from penstock.model.clock import seconds
from penstock.model.errors import StoreUnavailable
from penstock.model.job import Lease
from penstock.store.dynamodb import DynamoStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import StoreStage
from tests.contracts.test_dynamodb_costs import billed
from tests.dynamodb import new_store, new_table
from tests.emulators import dynoxide, use_emulator
from tools import aws_bill

JOBS = 100
PARAMS = b"x" * 100


async def _measure(*, keep_events: bool, passes: int) -> tuple[float, float]:
    """Write and read units of one plain life; the journal is numbered in so many passes."""
    clock = SimulatedClock()
    async with new_store(clock, keep_events=keep_events) as store:
        await store.number_entries()
        with billed(store) as bill:
            await _run_lives(store, StoreStage(store, clock), passes)
        return round(bill.writes / JOBS, 1), round(bill.reads / JOBS, 1)


async def _run_lives(store: DynamoStore, stage: StoreStage, passes: int) -> None:
    jobs = [(await stage.submit(ticketed=True, params=PARAMS)).id for _ in range(JOBS)]
    if passes > 1:
        await store.number_entries()
    claims = await stage.claim(*jobs)
    if passes > 1:
        await store.number_entries()
    for claim in claims:
        await stage.settle(Lease(claim.job, claim.fence))
    if passes:
        await store.number_entries()
    await store.counts()


@pytest.mark.parametrize(
    ("life", "keep_events", "passes"),
    [(aws_bill.WITHOUT_JOURNAL, False, 0), (aws_bill.ONE_PASS, True, 1), (aws_bill.PASS_PER_CHANGE, True, 3)],
    ids=["without the journal", "changes told together", "each change told by itself"],
)
async def test_a_plain_life_consumes_the_units_of_the_bill(life: aws_bill.Life, keep_events: bool, passes: int) -> None:
    assert await _measure(keep_events=keep_events, passes=passes) == (life.writes, life.reads)


async def test_the_plain_loop_beside_it_consumes_three_writes_and_half_a_read() -> None:
    with pytest.MonkeyPatch.context() as patch:
        use_emulator(patch, dynoxide())
        service = await AwsService.open("dynamodb", error=StoreUnavailable, deadline=seconds(5))
    try:
        name = new_table()
        await service.call(
            "CreateTable",
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        writes, reads = await _run_plain(service, name)
    finally:
        await service.close()
    assert (writes, reads) == (aws_bill.PLAIN.writes, aws_bill.PLAIN.reads)


async def _run_plain(service: AwsService, table: str) -> tuple[float, float]:
    """Put the item, note that it runs and that it is done, and ask for it once."""
    key = {"id": {"S": "job"}}
    common: dict[str, Any] = {"TableName": table, "ReturnConsumedCapacity": "TOTAL"}
    put = await service.call("PutItem", Item={**key, "state": {"S": "queued"}, "params": {"B": PARAMS}}, **common)
    writes = put["ConsumedCapacity"]["CapacityUnits"]
    for state in ("running", "succeeded"):
        answer = await service.call(
            "UpdateItem",
            Key=key,
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "state"},
            ExpressionAttributeValues={":s": {"S": state}},
            **common,
        )
        writes += answer["ConsumedCapacity"]["CapacityUnits"]
    got = await service.call("GetItem", Key=key, **common)
    return writes, got["ConsumedCapacity"]["CapacityUnits"]
