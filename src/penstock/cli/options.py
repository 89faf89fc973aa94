"""Options that several commands share. Imports nothing heavy, so that `penstock --help` stays fast."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from penstock.config import Settings

F = TypeVar("F", bound=Callable[..., Any])

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, one document per line.")
config = click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="Settings file.  [default: penstock.toml]"
)
url = click.option("--url", metavar="URL", help="Server to talk to.  [default: PENSTOCK_URL, or port 7373 here]")
log_level = click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), help="Least important messages to show.  [default: info]"
)
log_format = click.option(
    "--log-format", type=click.Choice(LOG_FORMATS), help="How the log is written.  [default: text]"
)
metrics_port = click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of this machine for /metrics; 0 takes a free one.  [default: metrics.address, or none]",
)
executors = click.option(
    "--executors", type=click.IntRange(0), metavar="N", help="Processes that run handlers.  [default: one per core]"
)
capacity = click.option(
    "--capacity", type=click.IntRange(0), metavar="N", help="Jobs run at once.  [default: 16 per executor]"
)


def logged(function: F) -> F:
    """The options of every command that runs a role: --log-level, --log-format."""
    return log_level(log_format(function))


def remote(function: F) -> F:
    """The options of every command that asks a server: --url, --config, --json."""
    return url(config(as_json(function)))


def metrics_address(port: int | None) -> str | None:
    """The setting `metrics.address` that a port stands for; None where none was given."""
    return None if port is None else f"127.0.0.1:{port}"


def settings(config: Path | None, flags: Mapping[str, object]) -> "Settings":
    """The settings in force for this command; `flags` by full name, None where not given."""
    from penstock.config import load

    return load(config, os.environ, flags)
