"""`penstock db restored`"""

from pathlib import Path
from urllib.parse import urlsplit

import click
from msgspec import structs

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.db import shards
from penstock.cli.loop import run
from penstock.cli.machine import print_json
from penstock.config import Settings
from penstock.model.errors import InvalidSetting
from penstock.model.extras import require
from penstock.model.shards import ShardMember
from penstock.model.timing import SystemClock


@command("restored", "penstock db restored", "penstock db restored --url postgresql://penstock@db1/penstock")
@shards.url_option
@click.option("--data", metavar="DIR", help="Folder of the embedded database.  [default: .penstock]")
@options.config
@options.as_json
def restored(*, url: str | None, data: str | None, config: Path | None, as_json: bool) -> None:
    """Say that shards were put back from a backup, so that no lease, outcome or output from before counts.

    What ran by the backup runs again, charged with nothing. Run it before the servers start; those on PostgreSQL may be
    running. Without --url it is about all shards of the settings: name the one if only one was restored.
    """
    settings = options.settings(config, {"store.url": url, "store.shards": () if url else None, "server.data": data})
    for named in shards.configured(settings) or [_embedded(settings)]:
        shard = run(_raise_epoch(named, settings))
        if as_json:
            print_json({"shard": shard.number, "restored": True})
        else:
            ink.say(f"{_name_of(shard)}: no lease from before counts any more; what ran waits to run again")


def _embedded(settings: Settings) -> ShardMember:
    from penstock.model.ids import ShardId
    from penstock.runtime.backends import data_folder

    return ShardMember(number=ShardId(0), url=f"sqlite://{data_folder(settings) / 'penstock.db'}")


async def _raise_epoch(shard: ShardMember, settings: Settings) -> ShardMember:
    """The shard as its database knows it: a URL alone does not tell its number."""
    from penstock.runtime.backends import open_shard

    shard = await _identify(shard)
    store = await open_shard(shard.number, shard.url, settings, SystemClock())
    try:
        await store.raise_epoch()
    finally:
        await store.close()
    return shard


async def _identify(shard: ShardMember) -> ShardMember:
    if (parts := urlsplit(shard.url)).scheme == "sqlite":
        _check_there(Path(parts.path))
        return shard
    require("postgres")
    from penstock.store.postgres.inspection import inspect

    found = await inspect(shard.url)
    if found.shard is None and found.pending:
        raise InvalidSetting(f"{shards.name_of(shard)} holds no shard: restore the backup into it first")
    return shard if found.shard is None else structs.replace(shard, number=found.shard)


def _check_there(file: Path) -> None:
    if not file.exists():
        raise InvalidSetting(f"there is no database at {file}: put the backup there, or name its folder with --data")


def _name_of(shard: ShardMember) -> str:
    parts = urlsplit(shard.url)
    return f"{shard.number} at {parts.path}" if parts.scheme == "sqlite" else shards.name_of(shard)
