"""`penstock shards set`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.shards.face import sentence
from penstock.model.shards import ShardState


@command("set", "penstock shards set 2 --weight 0.5", "penstock shards set 2 --state active")
@click.argument("number", metavar="SHARD", type=int)
@click.option("--weight", type=click.FloatRange(0), help="Its share of new jobs; 0 for none.")
@click.option("--state", type=click.Choice([state.value for state in ShardState]), help="What is wanted of it.")
@click.option("--keyed/--no-keyed", default=None, help="Whether keys and schedules may live there; see above.")
@options.remote
def set_(
    *,
    number: int,
    weight: float | None,
    state: str | None,
    keyed: bool | None,
    url: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Change a shard; what is not named stays as it is.

    An active shard takes new jobs, a draining one only those whose key lives there, and one that is down is not asked
    for anything.

    --keyed and --no-keyed change the ring that keys live on: a part of them moves. The jobs those keys have given are
    still found where they are, as long as any is kept. Refused while a schedule would move.
    """
    if weight is None and state is None and keyed is None:
        raise click.UsageError("nothing to change: name --weight, --state, --keyed or --no-keyed")
    with connected(url, config) as client:
        changed = client.update_shard(number, weight=weight, state=ShardState(state) if state else None, keyed=keyed)
    if as_json:
        print_json(changed)
    else:
        ink.say(sentence(changed))
