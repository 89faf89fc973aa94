"""The composition root: the only place that chooses backends and starts processes."""

from penstock.runtime.embedded import open_engine
from penstock.runtime.schedulers import schedule
from penstock.runtime.server import up
from penstock.runtime.workers import work

__all__ = ["open_engine", "schedule", "up", "work"]
