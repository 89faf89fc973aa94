"""`penstock db migrate`"""

from pathlib import Path

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.db import shards
from penstock.cli.machine import print_json
from penstock.model.extras import require


@command("migrate", "penstock db migrate", "penstock db migrate --url postgresql://penstock@db1/penstock")
@shards.url_option
@options.config
@options.as_json
def migrate(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """Apply what each shard lacks. Safe to repeat, and from many machines at once; servers may go on running."""
    require("postgres")
    from penstock.store.postgres.migrate import migrate as apply
    from penstock.store.postgres.migrate import named

    for shard, applied in shards.on_each(config, url, apply):
        if as_json:
            print_json({"shard": shard.number, "applied": [one.name for one in applied]})
        elif applied:
            ink.say(f"{shards.name_of(shard)}: applied {named(applied)}")
        else:
            ink.say(f"{shards.name_of(shard)}: up to date")
