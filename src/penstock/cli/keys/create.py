"""`penstock keys create`"""

from pathlib import Path

import click

from penstock.cli.commands import command
from penstock.cli.keys.desk import KeyAccess, options_of_keys
from penstock.cli.keys.face import show_new
from penstock.cli.spans import span
from penstock.model.keys import KeyScope


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
