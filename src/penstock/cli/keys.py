"""`penstock keys`: API keys, at a server or, without one, in the store of the settings."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli import options, style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.connection import fetch
from penstock.cli.exit_codes import REFUSED
from penstock.cli.format import Printer, ago, print_table, span
from penstock.cli.process import run
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
        "list": ("penstock.cli.keys:list_keys", "List keys, without their secrets."),
        "rotate": ("penstock.cli.keys:rotate", "Replace a key by a new one with the same terms."),
        "revoke": ("penstock.cli.keys:revoke", "Revoke keys for good."),
    },
    default="list",
)


R = TypeVar("R")
T = TypeVar("T")

direct_option = click.option(
    "--direct", is_flag=True, help="Go to the store of the settings itself, whether a server answers or not."
)
data_option = click.option("--data", metavar="DIR", help="Data folder of a server that is down.  [default: .penstock]")


class KeyAccess(Printer):
    """Keys, at the server that flag, environment or file names; without one, in the store of the settings.

    So the first key can be made before there is a server that needs it. A server that was named by --url is asked, and
    no other.
    """

    def __init__(self, url: str | None, config: Path | None, data: str | None, *, direct: bool, as_json: bool) -> None:
        super().__init__(as_json=as_json)
        self._flags = {"worker.url": url, "server.data": data}
        self._config = config
        self._direct = direct

    def ask(self, server: "Callable[[Client], T]", store: "Callable[[Keys], Coroutine[Any, Any, T]]") -> T:
        """Ask the server by the first call, or else the store by the second; both do the same."""
        style.hint(f"at {self._settings.worker.url}" if self._over_http else "in the store, no server was asked")
        return self._at_server(server) if self._over_http else run(self._in_store(store))

    @cached_property
    def _settings(self) -> Settings:
        return options.settings(self._config, self._flags)

    @cached_property
    def _over_http(self) -> bool:
        return not self._direct and (self._flags["worker.url"] is not None or _server_answers(self._settings))

    def _at_server(self, ask: "Callable[[Client], T]") -> T:
        from penstock.client import Client

        with Client(self._settings.worker.url, key=self._settings.worker.key, patience=0) as client:
            return ask(client)

    async def _in_store(self, ask: "Callable[[Keys], Coroutine[Any, Any, T]]") -> T:
        from penstock.runtime import open_engine

        async with open_engine(self._settings) as engine:
            return await ask(engine.keys)


def _server_answers(settings: Settings) -> bool:
    try:
        status, _ = asyncio.run(fetch(settings.worker.url, "/healthz"))
    except ServerUnavailable:
        return False
    return status == 200


def key_access(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of every command about keys, which it takes as one argument, `access`."""

    @wraps(function)
    def run(
        *, url: str | None, config: Path | None, data: str | None, direct: bool, as_json: bool, **given: object
    ) -> R:
        return function(access=KeyAccess(url, config, data, direct=direct, as_json=as_json), **given)

    return options.remote(data_option(direct_option(run)))


def print_new(made: MadeKey) -> None:
    """Print a new key alone on stdout, so that it can be piped, and what to do with it on stderr."""
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
@key_access
def create(
    *,
    name: str,
    scopes: tuple[str, ...],
    worker: bool,
    queues: tuple[str, ...],
    lifetime: float | None,
    access: KeyAccess,
) -> None:
    """Create a key and print it, alone on stdout. It is shown this once: only a digest of it is kept.

    Where no server answers, the key is made in the store itself; so the first one can be made before the first start.
    """
    from penstock.client.admin_calls import key_request

    wanted = (*scopes, *((KeyScope.WORKER,) if worker else ()))
    if not wanted:
        raise click.UsageError("say what the key may do: --scope, once or more often, or --worker")
    request = key_request(name, dict.fromkeys(wanted), queues or None, lifetime)
    made = access.ask(
        lambda client: client.create_key(name, request.scopes, queues=request.queues, lifetime=lifetime),
        lambda keys: keys.create(request),
    )
    access.show(made, lambda: print_new(made))


HEADS = ("KEY", "NAME", "SCOPES", "QUEUES", "CREATED", "EXPIRES")


@command("list", "penstock keys list --json")
@key_access
def list_keys(*, access: KeyAccess) -> None:
    """List the keys that were not revoked: what each may do, and until when."""
    found = access.ask(lambda client: client.keys(), _read_keys)
    empty = "no keys; make one with: penstock keys create --name ops --scope admin"
    access.show_list(KeyList(tuple(found)), found, _print, empty)


async def _read_keys(keys: "Keys") -> Sequence[KeyItem]:
    return tuple(map(key_item, await keys.list()))


def _print(found: Sequence[KeyItem]) -> None:
    print_table(HEADS, [_row(key, SystemClock()) for key in found], right=("CREATED", "EXPIRES"))


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
@key_access
def rotate(*, id: str, grace: float, lifetime: float | None, access: KeyAccess) -> None:
    """Replace a key by a new one with the same name, scopes and queues, and print that, alone on stdout.

    The old one stays good for the grace, so that programs can change over one by one.
    """
    from penstock.client.admin_calls import rotate_request

    request = rotate_request(grace, lifetime)
    made = access.ask(
        lambda client: client.rotate_key(id, grace=grace, lifetime=lifetime),
        lambda keys: keys.rotate(KeyId(id), request),
    )
    access.show(made, lambda: print_new(made))


@command("revoke", "penstock keys revoke k3v9x2ma")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@key_access
def revoke(*, ids: tuple[str, ...], access: KeyAccess) -> int:
    """Revoke keys for good. Every server refuses them within a second. May be repeated.

    Shards that do not answer are named, and the exit status is 1: they are told once they are back.
    """
    complete = True
    for id in ids:
        unreached = _revoke(access, id)
        complete = complete and not unreached
        access.say({"revoked": id, "unreached_shards": list(unreached)}, f"{id} is revoked")
        if unreached:
            style.say(style.warned(_warning(id, unreached)), err=True)
    return 0 if complete else REFUSED


def _revoke(access: KeyAccess, id: str) -> tuple[int, ...]:
    return access.ask(lambda client: client.revoke_key(id), lambda keys: keys.revoke(KeyId(id)))


def _warning(id: str, unreached: tuple[int, ...]) -> str:
    shards, them = ("shards", "them") if len(unreached) > 1 else ("shard", "it")
    return (
        f"{shards} {', '.join(map(str, unreached))} could not be told that {id} is revoked: a server that starts and "
        f"reaches only {them} lets the key in. Every server and scheduler that runs tells {them} on return; "
        "to see whether it has reached every shard, run this command again"
    )
