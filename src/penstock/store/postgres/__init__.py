"""A job store in a PostgreSQL database, shared by any number of processes: group commit, one statement per batch."""

from penstock.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
