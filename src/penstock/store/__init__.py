"""The JobStore seam: one shard, the durable truth. Backends are folders beside this file."""

from penstock.store.seam import Capabilities, JobStore, Outlook, Registry, Shard

__all__ = ["Capabilities", "JobStore", "Outlook", "Registry", "Shard"]
