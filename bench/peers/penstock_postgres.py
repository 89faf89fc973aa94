"""Penstock on PostgreSQL and Valkey: the API and its services in one process, a worker that reaches both directly."""

import os

import psycopg

from peers.adapter import become, run_copies
from peers.penstock import APP, PORT, PenstockEmbedded

WORKERS = 1
CAPACITY = 2048
PG_URL = os.environ["BENCH_PG_URL"]

os.environ |= {
    "PENSTOCK_STORE_URL": PG_URL,
    "PENSTOCK_BROKER_URL": os.environ["BENCH_REDIS_URL"],
    "PENSTOCK_SERVER_DATA": os.environ.get("BENCH_SERVER_DATA", "."),
}


class PenstockPostgres(PenstockEmbedded):
    def server(self) -> None:
        with psycopg.connect(PG_URL.rsplit("/", 1)[0] + "/postgres", autocommit=True) as connection:
            self.empty(connection)
        become("penstock", "up", APP, "--port", PORT, "--no-workers", "--allow-unknown-types", "--log-level", "warning")

    def empty(self, connection: psycopg.Connection) -> None:
        """Make an empty database: peers before us have left theirs."""
        connection.execute("DROP DATABASE IF EXISTS bench WITH (FORCE)")
        connection.execute("CREATE DATABASE bench")

    def worker(self) -> None:
        """Each brings its executors: as many in all as there are cores."""
        words = ("worker", APP, "--direct", "--capacity", str(CAPACITY), "--log-level", "warning")
        if WORKERS == 1:
            become("penstock", *words)
        run_copies(WORKERS, "penstock", *words)


ADAPTER = PenstockPostgres()
