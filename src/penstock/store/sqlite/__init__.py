"""A job store in one SQLite file: WAL, full durability, one writer that commits for all callers at once."""

from penstock.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
