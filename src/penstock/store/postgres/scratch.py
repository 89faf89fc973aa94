"""Databases that are made for one run of a benchmark or a test, and gone afterwards."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from penstock.store.postgres.connection import PostgresAddress, unavailable


@contextmanager
def scratch_database(url: str, rng: random.Random) -> Iterator[str]:
    """An empty database on the server of this URL; its own URL. StoreUnavailable if none can be made."""
    name = f"penstock_scratch_{rng.getrandbits(48):012x}"
    address = PostgresAddress.parse(url)
    try:
        with psycopg.connect(address.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            try:
                yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
            finally:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
    except psycopg.Error as error:
        raise unavailable(address, error) from error
