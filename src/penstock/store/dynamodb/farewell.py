"""What an ended job leaves beside its head: those items get its time to live once it has ended, never before.

It is done after the move. If a process dies in between, the items stay for ever, which costs their storage and nothing
else: a key whose job is gone is free.
"""

from collections.abc import Iterator, Sequence

from penstock.model.lifecycle import TERMINAL
from penstock.store.dynamodb.items import Head
from penstock.store.dynamodb.keys import idempotency_key, params_key
from penstock.store.dynamodb.statements import Swap
from penstock.store.dynamodb.table import DynamoTable
from penstock.store.dynamodb.values import ItemKey


async def expire_beside(table: DynamoTable, prefix: str, heads: Sequence[Head]) -> None:
    """Let the items beside these heads expire with them, as far as the jobs have ended."""
    swaps = [swap for head in heads if head.state in TERMINAL for swap in _expiries(prefix, head)]
    if swaps:
        await table.execute(swaps)


def _expiries(prefix: str, head: Head) -> Iterator[Swap]:
    ttl = {"ttl": head.ttl}
    if head.origin.key is not None:
        # A key that has passed to another job meanwhile stays as it is.
        yield Swap(idempotency_key(prefix, head.origin.key), ttl, {"job": head.id})
    if head.origin.params_apart:
        yield Swap(params_key(head.id), ttl, {})
    for tag in head.origin.tags:
        yield Swap(ItemKey(f"{prefix}tag#{tag}", f"{head.order}#{head.id}"), ttl, {})
