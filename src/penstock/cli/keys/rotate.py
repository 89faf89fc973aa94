"""`penstock keys rotate`"""

from pathlib import Path

import click

from penstock.cli.commands import command
from penstock.cli.keys.desk import KeyAccess, options_of_keys
from penstock.cli.keys.face import show_new
from penstock.cli.spans import span
from penstock.model.key_wire import GRACE_SECONDS
from penstock.model.keys import KeyId


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
