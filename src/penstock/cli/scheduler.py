"""`penstock scheduler`"""

from pathlib import Path

from penstock.cli import options
from penstock.cli.commands import command
from penstock.cli.log import start_logging
from penstock.cli.loop import run_for_long


@command(
    "scheduler",
    "penstock scheduler --config /etc/penstock/penstock.toml",
    "penstock scheduler --url http://127.0.0.1:7373",
)
@options.url
@options.config
@options.metrics_port
@options.logged
def scheduler(
    *, url: str | None, config: Path | None, metrics_port: int | None, log_level: str | None, log_format: str | None
) -> None:
    """Run one more scheduler: over the store and the broker of the settings, or for a server that is up elsewhere.

    Over a store it turns ticks into jobs, posts what is due, takes back what is lost and removes what is old.
    With the embedded store, which its server owns, it turns ticks into jobs over the server's HTTP.
    Any number may run: each tick becomes one job whoever is first, so losing one costs nothing.
    """
    flags = {
        "worker.url": url,
        "metrics.address": options.metrics_address(metrics_port),
        "log.level": log_level,
        "log.format": log_format,
    }
    settings = options.settings(config, flags)
    start_logging(settings.log)
    from penstock import runtime

    run_for_long(runtime.schedule(settings))
