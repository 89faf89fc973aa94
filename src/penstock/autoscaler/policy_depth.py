"""The depth family: two alarms. Out by steps while too much is due, in when there was nothing to do for a while."""

from msgspec.structs import replace

from penstock.autoscaler.memory import Memory, since
from penstock.autoscaler.policy_view import LOOK_SECONDS, View
from penstock.autoscaler.policy_want import Want
from penstock.model.fleets import Depth
from penstock.model.spans import settled
from penstock.model.timing import seconds


def want_by_depth(rule: Depth, view: View, memory: Memory) -> tuple[Want, Memory]:
    """As many as there are, a step more, or only those that are at work."""
    due = view.backlog + view.due_within(view.startup + LOOK_SECONDS)
    empty = since(memory.empty_since, view.at, holds=due == 0)
    memory = replace(memory, empty_since=empty)
    if empty is None:
        return _out(rule, due, view, memory)
    if view.at - empty < seconds(settled(rule.empty_for)):
        return Want(view.present, "none due, but not for long"), memory
    return Want(view.busy, "none due for long enough"), memory


def _out(rule: Depth, due: int, view: View, memory: Memory) -> tuple[Want, Memory]:
    add = max((step.add for step in rule.steps if due > step.above), default=0)
    if add == 0:
        return Want(view.present, f"{due} due, not above the lowest step"), memory
    if memory.stepped_at is not None and view.at - memory.stepped_at < seconds(settled(rule.cooldown)):
        return Want(view.present, f"{due} due, cooling down after the last step"), memory
    return Want(view.present + add, f"{due} due"), replace(memory, stepped_at=view.at)
