"""Tables of the settings with names that users choose: `[fleets.NAME]`, `[subscriptions.NAME]`, `[tasks.NAME]`.

For files only: a variable could not hold what they say. Readers give the tables that can be used, and a fault for each
that cannot.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, ValidationError, convert

from penstock.config.fleet_settings import TaskTable, VariableName
from penstock.model.errors import Invalid
from penstock.model.fleet_plan import changed
from penstock.model.fleets import MOST_WORKERS, Fleet
from penstock.model.names import is_name
from penstock.model.subscriptions import (
    MOST_BATCHED,
    URL_LENGTH,
    EventContent,
    InFlight,
    PerSecond,
    event_filter,
)

FLEETS: Final = "fleets"
SUBSCRIPTIONS: Final = "subscriptions"
TASKS: Final = "tasks"
TABLES: Final = (FLEETS, SUBSCRIPTIONS, TASKS)

TableFault = tuple[str, str]
"""The name of a table and what is wrong with it."""


class SubscriptionTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[subscriptions.NAME]`. `secret_env` names the variable of the server that holds the secret."""

    url: Annotated[str, Meta(max_length=URL_LENGTH)]
    types: tuple[str, ...] | None = None
    queues: tuple[str, ...] | None = None
    states: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    include: EventContent = EventContent.ITEM
    batch: Annotated[int, Meta(ge=1, le=MOST_BATCHED)] = 1
    in_flight: InFlight = 8
    per_second: PerSecond | None = None
    secret_env: VariableName | None = None


def read_fleets(tables: object) -> tuple[dict[str, dict[str, Any]], list[TableFault]]:
    """The tables of fleets as they were written: what a fleet lacks is declared elsewhere."""
    return _read(FLEETS, tables, "what the fleet is like", _check_fleet)


def read_subscriptions(tables: object) -> tuple[dict[str, SubscriptionTable], list[TableFault]]:
    written, faults = _read(SUBSCRIPTIONS, tables, "where it delivers to", _check_subscription)
    return {name: convert(table, SubscriptionTable) for name, table in written.items()}, faults


def read_tasks(tables: object) -> tuple[dict[str, TaskTable], list[TableFault]]:
    """The tables of what differs for the tasks of single fleets."""
    written, faults = _read(TASKS, tables, "what differs for the fleet's tasks", _check_tasks)
    return {name: convert(table, TaskTable) for name, table in written.items()}, faults


def _read(
    group: str, tables: object, about: str, check: Callable[[Mapping[str, Any]], None]
) -> tuple[dict[str, dict[str, Any]], list[TableFault]]:
    if not isinstance(tables, dict):
        return {}, [(group, f"is a group of tables; write [{group}.NAME] and {about} below")]
    wrong = {name: _wrong(group, name, table, about, check) for name, table in tables.items()}
    faults = [(f"[{group}.{name}]", fault) for name, fault in wrong.items() if fault]
    return ({} if faults else tables), faults


def _wrong(group: str, name: str, table: object, about: str, check: Callable[[Mapping[str, Any]], None]) -> str:
    if not is_name(name):
        return f"is no name for a {group.removesuffix('s')}; use letters, digits and . _ : -"
    if not isinstance(table, dict):
        return f"is a table; write [{group}.{name}] and {about} below"
    try:
        check(table)
    except Invalid as error:
        return error.message
    return ""


def _check_fleet(table: Mapping[str, Any]) -> None:
    # Whether min and max fit each other depends on what is declared; that is told where it is laid over.
    changed(Fleet(max=MOST_WORKERS), table)


def _check_tasks(table: Mapping[str, Any]) -> None:
    try:
        convert(table, TaskTable)
    except ValidationError as error:
        raise Invalid(f"tasks: {error}") from None


def _check_subscription(table: Mapping[str, Any]) -> None:
    try:
        read = convert(table, SubscriptionTable)
    except ValidationError as error:
        raise Invalid(f"subscription: {error}") from None
    event_filter(types=read.types, queues=read.queues, states=read.states, tags=read.tags)
