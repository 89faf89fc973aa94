"""`penstock autoscaler`"""

from pathlib import Path

import click

from penstock.cli import options
from penstock.cli.commands import command
from penstock.cli.log import start_logging
from penstock.cli.loop import run_for_long


@command("autoscaler", "penstock autoscaler shop.jobs:app --config /etc/penstock/penstock.toml")
@click.argument("app", metavar="MODULE:APP")
@options.config
@options.metrics_port
@options.logged
def autoscaler(
    *, app: str, config: Path | None, metrics_port: int | None, log_level: str | None, log_format: str | None
) -> None:
    """Start and stop workers for the job types of MODULE:APP, as many as there is work for.

    Where they run is a setting, fleet.backend: processes of this machine, containers, or Kubernetes.
    Any number may run, and for several apps: one of each app acts. If all are gone, jobs go on with the workers
    there are.
    """
    flags = {
        "metrics.address": options.metrics_address(metrics_port),
        "log.level": log_level,
        "log.format": log_format,
    }
    settings = options.settings(config, flags)
    start_logging(settings.log)
    from penstock import runtime

    run_for_long(runtime.scale(settings, app))
