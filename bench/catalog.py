"""The systems that can be measured, and how much work each is given."""

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Peer:
    """One system in one fair setting. A drain should last seconds, so a fast peer gets more jobs.

    `checkout` is another checkout of Penstock to measure, None for this one.
    """

    name: str
    adapter: str
    enqueue_jobs: int
    drain_jobs: int
    servers: tuple[str, ...] = ()
    node: bool = False
    own_server: bool = False
    by_default: bool = True
    keeps: str = ""
    checkout: Path | None = None

    @property
    def needs_virtualenv(self) -> bool:
        return not self.node and not self.own_server

    def of_checkout(self, checkout: Path) -> "Peer":
        """The same system as another checkout has it."""
        return replace(self, name=f"{self.name}@{checkout.name}", checkout=checkout)


_ALL = (
    Peer("huey-sqlite", "huey_sqlite", 5_000, 10_000, keeps="nothing; acks early; SQLite FULL"),
    Peer("taskiq", "taskiq", 5_000, 10_000, servers=("valkey",), keeps="nothing; acks early; Valkey in memory"),
    Peer("celery", "celery", 2_000, 4_000, servers=("valkey",), keeps="nothing; acks early; Valkey in memory"),
    Peer("pgqueuer", "pgqueuer", 3_000, 40_000, ("postgres",), by_default=False, keeps="log rows; acks late, batched"),
    Peer(
        "graphile-worker",
        "graphile_worker",
        2_000,
        60_000,
        ("postgres",),
        node=True,
        by_default=False,
        keeps="row deleted; acks late, batched",
    ),
    Peer(
        "penstock",
        "penstock",
        3_000,
        40_000,
        own_server=True,
        keeps="row, result, history; acks late, batched; SQLite FULL",
    ),
    Peer(
        "penstock-postgres",
        "penstock_postgres",
        3_000,
        60_000,
        ("postgres", "valkey"),
        own_server=True,
        by_default=False,
        keeps="row, result, history; acks late, batched; PostgreSQL and Valkey",
    ),
    Peer(
        "penstock-postgres-grown",
        "penstock_postgres_grown",
        3_000,
        60_000,
        ("postgres", "valkey"),
        own_server=True,
        by_default=False,
        keeps="the same, on a shard with 5,000,000 finished and 1,000,000 scheduled jobs",
    ),
    Peer(
        "penstock-grown",
        "penstock_grown",
        3_000,
        40_000,
        own_server=True,
        by_default=False,
        keeps="the same, on a shard with 5,000,000 finished and 1,000,000 scheduled jobs",
    ),
)
PEERS = {peer.name: peer for peer in _ALL}
