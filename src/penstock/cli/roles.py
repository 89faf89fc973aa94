"""`penstock up`, `api`, `scheduler` and `autoscaler`: the roles of a server. `worker` is in a file of its own."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.cli import options, style
from penstock.cli.commands import command
from penstock.cli.connection import fetch
from penstock.cli.format import print_json
from penstock.cli.process import Configure, role, run_for_long
from penstock.cli.style import bold, dim, good, say
from penstock.config import Settings
from penstock.model.errors import PenstockError
from penstock.model.wire.types import TypeList
from penstock.model.workers import JobType

EXAMPLES = {"string": "…", "integer": 1, "number": 1.5, "boolean": "true", "array": "[]", "object": "{}"}
TYPES_SHOWN = 8
PAGE_PATH = "/ui/"


async def print_banner(url: str, folder: Path, app: str | None, key: str = "") -> None:
    """Print the banner of a server that answers at `url` and keeps its data in `folder`."""
    from penstock import __version__

    types = await _types(url, key)
    say()
    say(f"  {good('●')} {bold('Penstock')} {__version__} is up at {bold(url)}")
    say()
    say(f"    {dim('page')}   {url}{PAGE_PATH}")
    say(f"    {dim('data')}   {folder}")
    say(f"    {dim('types')}  {_names(types, app)}")
    say()
    for line in things_to_try(url, types or ()):
        say(f"    {dim('try')}    {line}")
    say(f"    {dim('stop')}   Ctrl-C: running jobs finish first")
    say()


def things_to_try(url: str, types: Sequence[JobType]) -> list[str]:
    """Three commands that work as they stand."""
    server = "" if url.endswith("127.0.0.1:7373") else f" --url {url}"
    if not types:
        return [f"penstock worker module:app{server}", f"penstock doctor{server}", f"curl {url}/v1/jobs"]
    submit = f"penstock jobs submit {types[0].name}{_params(types[0])} --wait{server}"
    return [submit, f"penstock jobs list{server}", f"curl {url}/v1/queues"]


async def _types(url: str, key: str) -> Sequence[JobType] | None:
    try:
        _, body = await fetch(url, "/v1/types", key)
        return msgspec.json.decode(body, type=TypeList).types
    except (PenstockError, msgspec.MsgspecError):
        # The banner is a courtesy: it must not stop a server that is otherwise well, or asks for a key we have not.
        return None


def _names(types: Sequence[JobType] | None, app: str | None) -> str:
    if types is None and app is not None:
        return f"those of {app}"
    if not types:
        return "none yet; a worker declares them" if app is None else f"none in {app}"
    shown = ", ".join(declared.name for declared in types[:TYPES_SHOWN])
    return shown + (f" and {len(types) - TYPES_SHOWN} more" if len(types) > TYPES_SHOWN else "")


def _params(declared: JobType) -> str:
    """`name=value` for each of the params that must be given, with a value of its kind."""
    schema = declared.params_schema or {}
    kinds = {name: schema.get("properties", {}).get(name, {}).get("type") for name in schema.get("required", ())}
    return "".join(f" {name}={EXAMPLES.get(kind, '…')}" for name, kind in kinds.items())


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
@role
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
    as_json: bool,
    configure: Configure,
) -> None:
    """Run everything on this machine: the API, the scheduler, and workers for the job types of MODULE:APP.

    Workers come with the work and go when there is none; `penstock fleets` shows, bounds and scales them.
    Ctrl-C stops it: running jobs finish first, and what is queued is there again at the next start.
    """
    settings = configure(
        {
            "server.host": host,
            "server.port": port,
            "server.data": data,
            "server.allow_unknown_types": allow_unknown_types,
            "server.scheduler": False if no_scheduler else None,
            "worker.executors": executors,
            "worker.capacity": capacity,
        }
    )
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


@command("api", "penstock api --port 7373", "penstock api --config /etc/penstock/penstock.toml")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.  [default: 7373]")
@options.config
@role
@options.as_json
def api(*, host: str | None, port: int | None, as_json: bool, configure: Configure) -> None:
    """Run one API process of several, behind a load balancer.

    It keeps nothing: any of them serves any request. It needs a store and a broker that all processes reach
    (store.url or store.shards, and broker.url), and `penstock scheduler` somewhere to post what is due.
    Asked to stop, it sends its clients elsewhere and answers what is open.
    """
    settings = configure({"server.host": host, "server.port": port})
    run_for_long(_serve_api(settings, as_json=as_json))


async def _serve_api(settings: Settings, *, as_json: bool) -> None:
    from penstock import runtime

    def greet(url: str) -> None:
        if as_json:
            print_json({"url": url})
        else:
            style.say(f"Penstock API at {url}, its page at {url}{PAGE_PATH}  (Ctrl-C to stop)")

    await runtime.serve(settings, on_ready=greet)


@command(
    "scheduler",
    "penstock scheduler --config /etc/penstock/penstock.toml",
    "penstock scheduler --url http://127.0.0.1:7373",
)
@options.url
@options.config
@options.metrics_port
@role
def scheduler(*, url: str | None, metrics_port: int | None, configure: Configure) -> None:
    """Run one more scheduler: over the store and the broker of the settings, or for a server that is up elsewhere.

    Over a store it turns ticks into jobs, posts what is due, takes back what is lost and removes what is old.
    With the embedded store, which its server owns, it turns ticks into jobs over the server's HTTP.
    Any number may run: each tick becomes one job whoever is first, so losing one costs nothing.
    """
    settings = configure({"worker.url": url, "metrics.address": options.metrics_address(metrics_port)})
    from penstock import runtime

    run_for_long(runtime.schedule(settings))


@command("autoscaler", "penstock autoscaler shop.jobs:app --config /etc/penstock/penstock.toml")
@click.argument("app", metavar="MODULE:APP")
@options.config
@options.metrics_port
@role
def autoscaler(*, app: str, metrics_port: int | None, configure: Configure) -> None:
    """Start and stop workers for the job types of MODULE:APP, as many as there is work for.

    Where they run is a setting, fleet.backend: processes of this machine, containers, Kubernetes, or Amazon ECS.
    Any number may run, and for several apps: one of each app acts. If all are gone, jobs go on with the workers
    there are.
    """
    settings = configure({"metrics.address": options.metrics_address(metrics_port)})
    from penstock import runtime

    run_for_long(runtime.scale(settings, app))
