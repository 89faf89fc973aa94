"""`penstock db sql`"""

from pathlib import Path

import click

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.db import shards
from penstock.cli.machine import print_json
from penstock.model.extras import require


@command("sql", "penstock db sql --url postgresql://penstock@db1/penstock > pending.sql")
@shards.url_option
@options.config
@options.as_json
def sql(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """Print the SQL that migrate would run, to be read, or run by somebody who may: `psql -f pending.sql`."""
    require("postgres")
    from penstock.store.postgres.migrate import script, status

    for shard, stands in shards.on_each(config, url, status):
        if as_json:
            print_json({"shard": shard.number, "sql": script(stands.pending)})
        elif stands.pending:
            click.echo(f"-- {shards.name_of(shard)}\n{script(stands.pending)}")
        else:
            ink.say(f"{shards.name_of(shard)}: up to date", err=True)
