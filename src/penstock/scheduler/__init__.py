"""The services that keep jobs moving: tick, dispatch what is due, take back what is lost, remove what is old.

Each is stateless and redundant: any number may run, and any may die.
"""

from penstock.loop import run_service
from penstock.scheduler.dispatcher import Dispatcher
from penstock.scheduler.journal import JournalService
from penstock.scheduler.sweeper import Pruner, Reaper
from penstock.scheduler.ticker import Ticker

__all__ = ["Dispatcher", "JournalService", "Pruner", "Reaper", "Ticker", "run_service"]
