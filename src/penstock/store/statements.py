"""The text of a SQL statement: one per file in a store's `sql/`, named after the method that runs it.

A line `-- include NAME` stands for `sql/columns/NAME.sql`, a column list that several statements share: a new column is
one edit. A comma after the name follows the list.
"""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r"^ *-- include (\w+)(,?)$", re.MULTILINE)


def load_statement(package: str, name: str) -> str:
    """The text of a store's statement with its column lists, without comments that begin a line."""
    folder = files(package) / "sql"
    columns = folder / "columns"
    return _INCLUDE.sub(lambda found: _read(columns, found[1]) + found[2], _read(folder, name))


def _read(folder: Traversable, name: str) -> str:
    lines = (folder / f"{name}.sql").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
