"""`penstock up`"""

import asyncio
from pathlib import Path
from typing import Any

import click

from penstock.cli import options
from penstock.cli.banner import print_banner
from penstock.cli.commands import command
from penstock.cli.log import start_logging
from penstock.cli.loop import run_for_long
from penstock.cli.machine import print_json
from penstock.config import Settings


@command("up", "penstock up shop.jobs:app", "penstock up shop.jobs:app --port 8000 --data /var/lib/penstock")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.  [default: 7373]")
@click.option("--data", metavar="DIR", help="Folder for database and files.  [default: .penstock]")
@click.option("--no-workers", is_flag=True, help="Run no worker here; start them with `penstock worker`.")
@click.option("--no-scheduler", is_flag=True, help="Run no scheduler here; start them with `penstock scheduler`.")
@click.option("--allow-unknown-types", is_flag=True, default=None, help="Accept jobs of types no worker has declared.")
@options.executors
@options.capacity
@options.config
@options.logged
@options.as_json
def up(
    *,
    app: str | None,
    host: str | None,
    port: int | None,
    data: str | None,
    no_workers: bool,
    no_scheduler: bool,
    allow_unknown_types: bool | None,
    executors: int | None,
    capacity: int | None,
    config: Path | None,
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
) -> None:
    """Run everything on this machine: the API, the scheduler, and workers for the job types of MODULE:APP.

    Workers come with the work and go when there is none; `penstock fleets` shows, bounds and scales them.
    Ctrl-C stops it: running jobs finish first, and what is queued is there again at the next start.
    """
    settings = options.settings(
        config,
        {
            "server.host": host,
            "server.port": port,
            "server.data": data,
            "server.allow_unknown_types": allow_unknown_types,
            "server.scheduler": False if no_scheduler else None,
            "worker.executors": executors,
            "worker.capacity": capacity,
            "log.level": log_level,
            "log.format": log_format,
        },
    )
    start_logging(settings.log)
    run_for_long(_serve(settings, app, workers=not no_workers, as_json=as_json))


async def _serve(settings: Settings, app: str | None, *, workers: bool, as_json: bool) -> None:
    from penstock import runtime

    folder = data_folder(settings)
    key = settings.worker.key if settings.server.needs_keys else ""
    greetings: set[asyncio.Task[Any]] = set()

    def greet(url: str) -> None:
        if as_json:
            print_json({"url": url, "data": str(folder)})
        else:
            greetings.add(asyncio.ensure_future(print_banner(url, folder, app, key)))

    await runtime.up(settings, app, workers=workers, on_ready=greet)


def data_folder(settings: Settings) -> Path:
    """Where the server keeps its data, in full."""
    return Path(settings.server.data).expanduser().absolute()
