"""The SQL of the store: one statement per file in `sql/`, read once."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection

from penstock.store.rows import Row

Connection = AsyncConnection[Row]


def load(name: str) -> bytes:
    """The text of one statement, without its comments."""
    text = (files("penstock.store.postgres") / "sql" / f"{name}.sql").read_text("utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--")).encode()


async def query(connection: Connection, text: bytes, scope: Mapping[str, Any] | None = None) -> list[Row]:
    """All rows that a statement returns; their types are those of its columns, ids are JobIds."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(text, scope)
    return await cursor.fetchall()


async def execute(connection: Connection, text: bytes, scope: Mapping[str, Any] | None = None) -> int:
    """For a statement that returns nothing: how many rows it changed."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(text, scope)
    return cursor.rowcount
