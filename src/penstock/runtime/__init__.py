"""The composition root: the only place that chooses backends and starts processes."""

from penstock.runtime.backends import open_engine
from penstock.runtime.roles import scale, schedule
from penstock.runtime.server import serve, up
from penstock.runtime.workers import work

__all__ = ["open_engine", "scale", "schedule", "serve", "up", "work"]
