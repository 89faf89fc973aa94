"""What the guide to jobs inside a transaction takes for granted: URLs, and a table and a role of the user's."""

import os

import psycopg
from jobs import app, confirm  # noqa: F401 - for the guide

from penstock import Client  # noqa: F401 - for the guide

SHARD_URL = YOUR_URL = os.environ["PENSTOCK_STORE_URL"]
with psycopg.connect(SHARD_URL) as connection:
    connection.execute("CREATE TABLE orders (id integer, total integer)")
    connection.execute("DROP ROLE IF EXISTS shop")
    connection.execute("CREATE ROLE shop")
