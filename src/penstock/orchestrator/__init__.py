"""The orchestrator: knows the shards and their health, and routes to them. A Store over Shards."""

from penstock.orchestrator.keeper import OpenShard
from penstock.orchestrator.store import ShardedStore

__all__ = ["OpenShard", "ShardedStore"]
