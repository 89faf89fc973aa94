"""`penstock keys revoke`"""

from pathlib import Path

import click

from penstock.cli import ink
from penstock.cli.commands import command
from penstock.cli.ending import REFUSED
from penstock.cli.keys.desk import KeyAccess, options_of_keys
from penstock.cli.machine import print_json
from penstock.model.keys import KeyId


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
            ink.say(f"{id} is revoked")
        if unreached:
            ink.say(ink.warned(_warning(id, unreached)), err=True)
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
