"""The tables `[fleets.NAME]` of penstock.toml: each says some fields of a fleet, laid over what is declared."""

from penstock.model.errors import Invalid
from penstock.model.fleet_plan import changed
from penstock.model.fleets import MOST_WORKERS, Fleet
from penstock.model.names import is_name

FLEETS = "fleets"


def read_tables(tables: object) -> tuple[dict[str, dict[str, object]], list[tuple[str, str]]]:
    """The tables that can be used, by name; and for each that cannot, its name and what is wrong."""
    if not isinstance(tables, dict):
        return {}, [(FLEETS, "is a group of tables; write [fleets.NAME] and what the fleet is like below")]
    faults = [(f"[{FLEETS}.{name}]", wrong) for name, table in tables.items() if (wrong := _wrong(name, table))]
    return ({} if faults else tables), faults


def _wrong(name: str, table: object) -> str:
    if not is_name(name):
        return "is no name for a fleet; use letters, digits and . _ : -"
    if not isinstance(table, dict):
        return f"is a table; write [{FLEETS}.{name}] and what the fleet is like below"
    try:
        # Whether min and max fit each other depends on what is declared; that is told where it is laid over.
        changed(Fleet(max=MOST_WORKERS), table)
    except Invalid as error:
        return error.message
    return ""
