"""`penstock keys revoke`"""

from pathlib import Path

import click

from penstock.cli import ink
from penstock.cli.commands import command
from penstock.cli.keys.desk import Desk, options_of_keys
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
) -> None:
    """Revoke keys for good. Every server refuses them within a second."""
    desk = Desk(url, config, data, direct=direct)
    for id in ids:
        _revoke(desk, id)
        if as_json:
            print_json({"revoked": id})
        else:
            ink.say(f"{id} is revoked")


def _revoke(desk: Desk, id: str) -> None:
    desk.ask(lambda client: client.revoke_key(id), lambda keys: keys.revoke(KeyId(id)))
