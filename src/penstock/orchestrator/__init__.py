"""The orchestrator: knows the shards and their health, and routes to them. A Store over Shards."""

from penstock.orchestrator.store import ShardedStore
from penstock.orchestrator.supervisor import OpenShard

__all__ = ["OpenShard", "ShardedStore"]
