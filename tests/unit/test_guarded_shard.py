"""A guarded shard has every method of a shard, with its signature, and lets none pass by the breaker."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.errors import StoreUnavailable
from penstock.model.ids import ShardId
from penstock.model.shards import ShardMember
from penstock.orchestrator.shard import GuardedShard, ShardBreaker
from penstock.store.seam import Capabilities, Shard, common_capabilities
from penstock.testing.clock import SimulatedClock

UNGUARDED = {"close", "find_moved"}
"""What a single shard answers by itself."""


def methods() -> Iterator[str]:
    for name, member in inspect.getmembers(Shard, inspect.isfunction):
        if not name.startswith("_"):
            assert name in vars(GuardedShard), f"GuardedShard lacks {member}"
            yield name


def calls() -> Iterator[str]:
    return (name for name in methods() if inspect.iscoroutinefunction(getattr(Shard, name)))


def guarded() -> GuardedShard:
    return GuardedShard(ShardMember(ShardId(3), "shard 3"), ShardBreaker(ShardId(3), SimulatedClock()))


def arguments(name: str) -> dict[str, Any]:
    parameters = list(inspect.signature(getattr(Shard, name)).parameters.values())[1:]
    return {one.name: object() for one in parameters if one.default is inspect.Parameter.empty}


def test_a_store_over_shards_can_do_what_each_of_them_can() -> None:
    assert common_capabilities([]) == Capabilities(one_order=False)
    assert common_capabilities([Capabilities(), Capabilities()]) == Capabilities(one_order=False)
    small = Capabilities(tick_verdicts=49, counts_up_to=10, exact_counts=False, prompt_lines=False, rows_expire=True)
    large = Capabilities(tick_verdicts=99, counts_up_to=1000)
    assert common_capabilities([large, small, Capabilities()]) == replace(small, one_order=False)


@pytest.mark.parametrize("name", [*methods()])
def test_a_method_takes_what_the_seam_says(name: str) -> None:
    ours, seam = inspect.signature(getattr(GuardedShard, name)), inspect.signature(getattr(Shard, name))
    assert [*ours.parameters.values()] == [*seam.parameters.values()]


@pytest.mark.parametrize("name", [name for name in calls() if name not in UNGUARDED])
async def test_a_call_of_a_shard_that_is_not_open_is_refused(name: str) -> None:
    with pytest.raises(StoreUnavailable, match="shard 3 does not answer"):
        await getattr(guarded(), name)(**arguments(name))


@pytest.mark.parametrize("name", [name for name in calls() if name not in {*UNGUARDED, "probe"}])
async def test_a_call_is_counted_and_reaches_the_method_of_its_name(name: str) -> None:
    shard, asked = guarded(), arguments(name)

    class Inside:
        def __getattr__(self, called: str) -> Any:
            async def answer(**more: object) -> object:
                return called, more

            return answer

    shard.adopt(Inside())
    assert await getattr(shard, name)(**asked) == (name, asked)
    assert shard.breaker.calls == 1
