"""The services that keep jobs moving: tick, dispatch what is due, take back what is lost, remove what is old.

Each is stateless and redundant: any number may run, and any may die.
"""

from penstock.scheduler.dispatcher import Dispatcher
from penstock.scheduler.pruner import Pruner
from penstock.scheduler.reaper import Reaper
from penstock.scheduler.service import run_service
from penstock.scheduler.ticker import Ticker

__all__ = ["Dispatcher", "Pruner", "Reaper", "Ticker", "run_service"]
