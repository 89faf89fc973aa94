"""What became of a tick: the state of its job, or why there is none."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli import ink
from penstock.model.errors import NotFound
from penstock.model.schedule_wire import ScheduleItem, TickItem

if TYPE_CHECKING:
    from penstock.client import Client


def last_results(client: "Client", items: Sequence[ScheduleItem]) -> dict[str, str]:
    """By schedule, what became of its last tick; nothing for one that has not ticked."""
    ticked = [item.name for item in items if item.last_tick_at is not None]
    found = {name: next(client.ticks(name, page_size=1), None) for name in ticked}
    return {name: result_of(client, tick) for name, tick in found.items() if tick is not None}


def result_of(client: "Client", tick: TickItem) -> str:
    """The state of the tick's job now, or the reason it was skipped with."""
    if tick.job is None:
        return ink.dim(f"skipped: {tick.skipped}")
    try:
        return ink.state(client.get(tick.job).state)
    except NotFound:
        return ink.dim("removed after its retention")
