"""Which databases `penstock db` is about, and a connection to each."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import click

from penstock.cli import ink, options
from penstock.cli.loop import run
from penstock.config import Settings
from penstock.model.shards import ShardMember

if TYPE_CHECKING:
    from penstock.store.postgres.statements import Connection

T = TypeVar("T")

url_option = click.option("--url", metavar="URL", help="The database of one shard.  [default: those of the settings]")


def on_each(
    config: Path | None, url: str | None, act: Callable[["Connection"], Awaitable[T]]
) -> list[tuple[ShardMember, T]]:
    """What `act` gives on each PostgreSQL shard, one after another; a word about those that are none."""
    settings = options.settings(config, {"store.url": url, "store.shards": () if url else None})
    chosen = configured(settings)
    ours = [shard for shard in chosen if urlsplit(shard.url).scheme in {"postgresql", "postgres"}]
    if len(ours) < max(len(chosen), 1):
        ink.say("SQLite brings itself up to date when the server starts: nothing to do for it here", err=True)
    return run(_on_each(ours, act))


def configured(settings: Settings) -> Sequence[ShardMember]:
    """The shards of the settings, in order; none where jobs are kept in the data folder."""
    from penstock.runtime.backends import embedded, shard_map

    return [] if embedded(settings) else list(shard_map(settings).members.values())


def name_of(shard: ShardMember) -> str:
    """For people, and without a password."""
    from penstock.store.postgres.address import PostgresAddress

    return f"{shard.number} at {PostgresAddress.parse(shard.url).shown}"


async def _on_each(
    shards: Sequence[ShardMember], act: Callable[["Connection"], Awaitable[T]]
) -> list[tuple[ShardMember, T]]:
    from penstock.store.postgres.migrate import connect

    answers = []
    for shard in shards:
        async with connect(shard.url) as connection:
            answers.append((shard, await act(connection)))
    return answers
