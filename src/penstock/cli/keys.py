"""`penstock keys`"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli import options, style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import fetch
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import ago, print_table, span
from penstock.cli.json_output import print_json
from penstock.cli.loop import run
from penstock.config import Settings
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import ServerUnavailable
from penstock.model.keys import KeyId, KeyScope
from penstock.model.wire.keys import GRACE_SECONDS, KeyItem, KeyList, MadeKey, key_item

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.engine.keys import Keys


keys = CommandGroup(
    name="keys",
    help="Make API keys, list, rotate and revoke them.",
    examples=("penstock keys create --name ops --scope admin", "penstock keys list"),
    lazy={
        "create": ("penstock.cli.keys:create", "Create a key and print it, this once."),
        "list": ("penstock.cli.keys:standing", "List keys, without their secrets."),
        "rotate": ("penstock.cli.keys:rotate", "Replace a key by a new one with the same terms."),
        "revoke": ("penstock.cli.keys:revoke", "Revoke keys for good."),
    },
    default="list",
)


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

direct = click.option(
    "--direct", is_flag=True, help="Go to the store of the settings itself, whether a server answers or not."
)
data = click.option("--data", metavar="DIR", help="Data folder of a server that is down.  [default: .penstock]")


def options_of_keys(function: F) -> F:
    """The options of every command about keys."""
    return options.remote(data(direct(function)))


class KeyAccess:
    """Keys, at the server that flag, environment or file names; without one, in the store of the settings.

    So the first key can be made before there is a server that needs it. A server that was named by --url is asked, and
    no other.
    """

    def __init__(self, url: str | None, config: Path | None, data: str | None, *, direct: bool) -> None:
        self._settings = options.settings(config, {"worker.url": url, "server.data": data})
        self._over_http = not direct and (url is not None or _answers(self._settings))

    def ask(self, server: "Callable[[Client], T]", store: "Callable[[Keys], Coroutine[Any, Any, T]]") -> T:
        """Ask for the same in the way that is open."""
        style.hint(f"at {self._settings.worker.url}" if self._over_http else "in the store, no server was asked")
        return self._at_server(server) if self._over_http else run(self._in_store(store))

    def _at_server(self, ask: "Callable[[Client], T]") -> T:
        from penstock.client import Client

        with Client(self._settings.worker.url, key=self._settings.worker.key, patience=0) as client:
            return ask(client)

    async def _in_store(self, ask: "Callable[[Keys], Coroutine[Any, Any, T]]") -> T:
        from penstock.runtime import open_engine

        async with open_engine(self._settings) as engine:
            return await ask(engine.keys)


def _answers(settings: Settings) -> bool:
    try:
        status, _ = asyncio.run(fetch(settings.worker.url, "/healthz"))
    except ServerUnavailable:
        return False
    return status == 200


def show_new(made: MadeKey, *, as_json: bool) -> None:
    """Print a new key alone on stdout, so that it can be piped, and what to do with it on stderr."""
    if as_json:
        print_json(made)
        return
    style.say(made.key)
    until = f"until {made.expires_at:%Y-%m-%d %H:%M} UTC" if made.expires_at else "until it is revoked"
    style.say(f"{made.id} ({made.name}) is good for {', '.join(made.scopes)}, {until}", err=True)
    style.say("it is shown this once: keep it, and give it to programs as PENSTOCK_KEY", err=True)


@command(
    "create",
    "penstock keys create --name ops --scope admin",
    "penstock keys create --name shop --scope jobs:read --scope jobs:write --expires 90d",
    "penstock keys create --name mailer --worker --queue mail > mailer.key",
)
@click.option("--name", required=True, metavar="NAME", help="Whom it is for; shown in lists.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in KeyScope]),
    help="What it may do; may be repeated.",
)
@click.option("--worker", is_flag=True, help="Short for --scope worker.")
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Limit a worker key; may be repeated.")
@click.option("--expires", "lifetime", type=span, metavar="SPAN", help="How long it is good: 90d.  [default: for ever]")
@options_of_keys
def create(
    *,
    name: str,
    scopes: tuple[str, ...],
    worker: bool,
    queues: tuple[str, ...],
    lifetime: float | None,
    direct: bool,
    data: str | None,
    url: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Create a key and print it, alone on stdout. It is shown this once: only a digest of it is kept.

    Where no server answers, the key is made in the store itself; so the first one can be made before the first start.
    """
    from penstock.client.key_calls import key_request

    wanted = (*scopes, *((KeyScope.WORKER,) if worker else ()))
    if not wanted:
        raise click.UsageError("say what the key may do: --scope, once or more often, or --worker")
    request = key_request(name, dict.fromkeys(wanted), queues or None, lifetime)
    made = KeyAccess(url, config, data, direct=direct).ask(
        lambda client: client.create_key(name, request.scopes, queues=request.queues, lifetime=lifetime),
        lambda keys: keys.create(request),
    )
    show_new(made, as_json=as_json)


HEADS = ("KEY", "NAME", "SCOPES", "QUEUES", "CREATED", "EXPIRES")


@command("list", "penstock keys list --json")
@options_of_keys
def standing(*, direct: bool, data: str | None, url: str | None, config: Path | None, as_json: bool) -> None:
    """List the keys that were not revoked: what each may do, and until when."""
    found = KeyAccess(url, config, data, direct=direct).ask(lambda client: client.keys(), _in_store)
    if as_json:
        print_json(KeyList(tuple(found)))
    elif found:
        print_table(HEADS, [_row(key, SystemClock()) for key in found], right=("CREATED", "EXPIRES"))
    else:
        style.say("no keys; make one with: penstock keys create --name ops --scope admin", err=True)


async def _in_store(keys: "Keys") -> Sequence[KeyItem]:
    return tuple(map(key_item, await keys.list()))


def _row(key: KeyItem, clock: Clock) -> tuple[str, ...]:
    queues = "all" if key.queues is None else ", ".join(key.queues)
    return (key.id, key.name, ", ".join(key.scopes), queues, ago(key.created_at, clock), _expiry(key, clock))


def _expiry(key: KeyItem, clock: Clock) -> str:
    if key.expires_at is None:
        return "never"
    shown = ago(key.expires_at, clock)
    return shown if key.expires_at > clock.now() else style.warned(f"expired {shown}")


@command("rotate", "penstock keys rotate k3v9x2ma --grace 1h")
@click.argument("id", metavar="ID")
@click.option(
    "--grace",
    type=span,
    default=f"{GRACE_SECONDS:g}",
    metavar="SPAN",
    help="How long the old key stays good.  [default: 1d]",
)
@click.option("--expires", "lifetime", type=span, metavar="SPAN", help="How long the new one is good.  [for ever]")
@options_of_keys
def rotate(
    *,
    id: str,
    grace: float,
    lifetime: float | None,
    direct: bool,
    data: str | None,
    url: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Replace a key by a new one with the same name, scopes and queues, and print that, alone on stdout.

    The old one stays good for the grace, so that programs can change over one by one.
    """
    from penstock.client.key_calls import rotate_request

    request = rotate_request(grace, lifetime)
    made = KeyAccess(url, config, data, direct=direct).ask(
        lambda client: client.rotate_key(id, grace=grace, lifetime=lifetime),
        lambda keys: keys.rotate(KeyId(id), request),
    )
    show_new(made, as_json=as_json)


@command("revoke", "penstock keys revoke k3v9x2ma")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options_of_keys
def revoke(
    *,
    ids: tuple[str, ...],
    direct: bool,
    data: str | None,
    url: str | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Revoke keys for good. Every server refuses them within a second. May be repeated.

    Shards that do not answer are named, and the exit status is 1: they are told once they are back.
    """
    desk = KeyAccess(url, config, data, direct=direct)
    complete = True
    for id in ids:
        unreached = _revoke(desk, id)
        complete = complete and not unreached
        if as_json:
            print_json({"revoked": id, "unreached_shards": list(unreached)})
        else:
            style.say(f"{id} is revoked")
        if unreached:
            style.say(style.warned(_warning(id, unreached)), err=True)
    return 0 if complete else REFUSED


def _revoke(desk: KeyAccess, id: str) -> tuple[int, ...]:
    return desk.ask(lambda client: client.revoke_key(id), lambda keys: keys.revoke(KeyId(id)))


def _warning(id: str, unreached: tuple[int, ...]) -> str:
    shards, them = ("shards", "them") if len(unreached) > 1 else ("shard", "it")
    return (
        f"{shards} {', '.join(map(str, unreached))} could not be told that {id} is revoked: a server that starts and "
        f"reaches only {them} lets the key in. Every server and scheduler that runs tells {them} on return; "
        "to see whether it has reached every shard, run this command again"
    )
