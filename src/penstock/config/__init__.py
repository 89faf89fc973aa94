"""One frozen tree of settings: file < environment < flags; all faults reported at once."""

from penstock.config.load import load
from penstock.config.settings import (
    LimitSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    TimingSettings,
    WorkerSettings,
)

__all__ = [
    "LimitSettings",
    "RetentionSettings",
    "ServerSettings",
    "Settings",
    "TimingSettings",
    "WorkerSettings",
    "load",
]
