"""Brings a database file up to the schema of this code by numbered migrations; `user_version` is the last applied."""

from importlib.resources import files

import apsw

from penstock.model.errors import StoreUnavailable


def migrations() -> dict[int, str]:
    """Every migration's SQL by its number, in order."""
    folder = files("penstock.store.sqlite") / "migrations"
    scripts = sorted((entry.name, entry) for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {int(name.partition("_")[0]): entry.read_text("utf-8") for name, entry in scripts}


def migrate(connection: apsw.Connection) -> None:
    """Apply what is missing, each migration in a transaction of its own; refuse a database newer than this code."""
    known = migrations()
    version = int(str(connection.pragma("user_version")))
    if version > max(known):
        raise StoreUnavailable(
            f"{connection.filename} has schema {version}, this Penstock knows up to {max(known)}: "
            "start the newer Penstock that wrote it, or choose another --data folder"
        )
    for number, script in known.items():
        if number > version:
            _apply(connection, number, script)


def _apply(connection: apsw.Connection, number: int, script: str) -> None:
    with connection:
        connection.execute(script)
        connection.pragma("user_version", number)
