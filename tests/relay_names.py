"""The name under which a shard keeps what the relay of a subscription did."""

import msgspec

from penstock.model.notices import NoticeKind
from penstock.model.subscriptions import Subscription
from penstock.store import Shard


async def relay_name(shard: Shard, subscription: str = "orders") -> str:
    """As the shard itself knows the subscription."""
    told = {one.about: one.value for one in await shard.notices()}
    value = told[NoticeKind.SUBSCRIPTION, subscription]
    assert value is not None
    return msgspec.json.decode(value, type=Subscription).relay_name
