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
@options.log_level
def autoscaler(*, app: str, config: Path | None, metrics_port: int | None, log_level: str) -> None:
    """Start and stop workers for the job types of MODULE:APP, as many as there is work for.

    Where they run is a setting, fleet.backend: processes of this machine, containers, or Kubernetes.
    Any number may run: one acts. If all are gone, jobs go on with the workers there are.
    """
    settings = options.settings(config, {"metrics.address": options.metrics_address(metrics_port)})
    start_logging(log_level)
    from penstock import runtime

    run_for_long(runtime.scale(settings, app))
