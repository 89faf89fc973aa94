"""`penstock api`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.log import start_logging
from penstock.cli.loop import run_for_long
from penstock.cli.machine import print_json
from penstock.config import Settings


@command("api", "penstock api --port 7373", "penstock api --config /etc/penstock/penstock.toml")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.  [default: 7373]")
@options.config
@options.logged
@options.as_json
def api(
    *,
    host: str | None,
    port: int | None,
    config: Path | None,
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
) -> None:
    """Run one API process of several, behind a load balancer.

    It keeps nothing: any of them serves any request. It needs a store and a broker that all processes reach
    (store.url or store.shards, and broker.url), and `penstock scheduler` somewhere to post what is due.
    Asked to stop, it sends its clients elsewhere and answers what is open.
    """
    flags = {"server.host": host, "server.port": port, "log.level": log_level, "log.format": log_format}
    settings = options.settings(config, flags)
    start_logging(settings.log)
    run_for_long(_serve_api(settings, as_json=as_json))


async def _serve_api(settings: Settings, *, as_json: bool) -> None:
    from penstock import runtime

    def greet(url: str) -> None:
        if as_json:
            print_json({"url": url})
        else:
            ink.say(f"Penstock API at {url}  (Ctrl-C to stop)")

    await runtime.serve(settings, on_ready=greet)
