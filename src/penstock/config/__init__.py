"""One frozen tree of settings: file < environment < flags; all faults reported at once."""

from penstock.config.event_settings import EventSettings
from penstock.config.fleet_settings import EcsSettings, FleetSettings, TaskTable
from penstock.config.load import is_setting, load, variable
from penstock.config.log_settings import LogSettings, MetricsSettings
from penstock.config.settings import (
    BrokerSettings,
    LimitSettings,
    ObjectSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    TimingSettings,
    WorkerSettings,
    is_loopback,
)

__all__ = [
    "BrokerSettings",
    "EcsSettings",
    "EventSettings",
    "FleetSettings",
    "LimitSettings",
    "LogSettings",
    "MetricsSettings",
    "ObjectSettings",
    "RetentionSettings",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "TaskTable",
    "TimingSettings",
    "WorkerSettings",
    "is_loopback",
    "is_setting",
    "load",
    "variable",
]
