"""`penstock db status`"""

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.db import shards
from penstock.cli.machine import print_json
from penstock.cli.table import print_table
from penstock.model.extras import require

if TYPE_CHECKING:
    from penstock.store.postgres.migrate import MigrationStatus


@command("status", "penstock db status", "penstock db status --url postgresql://penstock@db1/penstock --json")
@shards.url_option
@options.config
@options.as_json
def status(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """Show which migrations each shard has and lacks. Changes nothing."""
    require("postgres")
    from penstock.store.postgres.migrate import status as read

    found = shards.on_each(config, url, read)
    if as_json:
        for shard, stands in found:
            print_json({"shard": shard.number, **named(stands)})
    elif found:
        rows = [row for shard, stands in found for row in _rows(shards.name_of(shard), stands)]
        print_table(("SHARD", "MIGRATION", "STATE"), rows)


def named(stands: "MigrationStatus") -> dict[str, list[str]]:
    """A shard's status, by the names of migrations."""
    return {"applied": [one.name for one in stands.applied], "pending": [one.name for one in stands.pending]}


def _rows(shard: str, stands: "MigrationStatus") -> list[tuple[str, str, str]]:
    from penstock.store.postgres.migrate import migrations

    known = {one.number for one in migrations()}
    applied = [
        (one.name, "applied" if one.number in known else "applied by a newer Penstock") for one in stands.applied
    ]
    pending = [(one.name, ink.warned("pending")) for one in stands.pending]
    return [(shard, *row) for row in applied + pending]
