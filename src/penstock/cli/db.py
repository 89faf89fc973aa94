"""`penstock db`: the tables of PostgreSQL and DynamoDB shards, and shards that were restored from a backup."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import click
from msgspec import structs

from penstock.cli import options, style
from penstock.cli.commands import CommandGroup, command
from penstock.cli.db_tables import is_table, migrate_tables, read_status, rows_of, table_name
from penstock.cli.format import print_json, print_table
from penstock.cli.process import run
from penstock.config import Settings
from penstock.model.clock import SystemClock
from penstock.model.errors import InvalidSetting
from penstock.model.extras import require
from penstock.model.shards import ShardMember

if TYPE_CHECKING:
    from penstock.store.postgres.migrate import Migration, MigrationStatus
    from penstock.store.postgres.statements import Connection


db = CommandGroup(
    name="db",
    help="Bring the tables of shards up to date, see where they stand, and say that a shard was restored.",
    examples=("penstock db status", "penstock db migrate --url postgresql://penstock@db1/penstock"),
    lazy={
        "status": ("penstock.cli.db:status", "Show what the tables of each shard have and lack."),
        "migrate": ("penstock.cli.db:migrate", "Apply what each shard lacks."),
        "restored": ("penstock.cli.db:restored", "Say that shards were put back from a backup."),
        "sql": ("penstock.cli.db:sql", "Print the SQL that migrate would run."),
    },
    default="status",
)


T = TypeVar("T")

url_option = click.option("--url", metavar="URL", help="The database of one shard.  [default: those of the settings]")


def choose_shards(config: Path | None, url: str | None) -> Sequence[ShardMember]:
    """The shards that have tables on a server. Says so where others are left out."""
    settings = options.settings(config, {"store.url": url, "store.shards": () if url else None})
    chosen = configured_shards(settings)
    ours = [shard for shard in chosen if is_table(shard) or _is_database(shard)]
    if len(ours) < max(len(chosen), 1):
        style.say("SQLite brings itself up to date when the server starts: nothing to do for it here", err=True)
    return ours


def run_on_each(
    shards: Sequence[ShardMember], act: Callable[["Connection"], Awaitable[T]]
) -> list[tuple[ShardMember, T]]:
    """Run `act` on each PostgreSQL shard of these in turn; its results."""
    ours = [shard for shard in shards if _is_database(shard)]
    if not ours:
        return []
    require("postgres")
    return run(_run_on_each(ours, act))


def _is_database(shard: ShardMember) -> bool:
    return urlsplit(shard.url).scheme in {"postgresql", "postgres"}


def configured_shards(settings: Settings) -> Sequence[ShardMember]:
    """The shards of the settings, in order; none where jobs are kept in the data folder."""
    from penstock.backends import embedded, shard_map

    return [] if embedded(settings) else list(shard_map(settings).members.values())


def name_of(shard: ShardMember) -> str:
    """For people, and without a password."""
    from penstock.store.postgres.connection import PostgresAddress

    return f"{shard.number} at {PostgresAddress.parse(shard.url).shown}"


async def _run_on_each(
    shards: Sequence[ShardMember], act: Callable[["Connection"], Awaitable[T]]
) -> list[tuple[ShardMember, T]]:
    from penstock.store.postgres.migrate import connect

    answers = []
    for shard in shards:
        async with connect(shard.url) as connection:
            answers.append((shard, await act(connection)))
    return answers


@command("status", "penstock db status", "penstock db status --url postgresql://penstock@db1/penstock --json")
@url_option
@options.config
@options.as_json
def status(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """Show which migrations each shard in PostgreSQL has and lacks, and which parts each table. Changes nothing."""
    shards = choose_shards(config, url)
    found = run_on_each(shards, _read_migrations)
    tables = read_status([shard for shard in shards if is_table(shard)])
    if as_json:
        for shard, stands in found:
            print_json({"shard": shard.number, **names_by_state(stands)})
        for shard, shape in tables:
            print_json({"shard": shard.number, **structs.asdict(shape)})
        return
    rows = [row for shard, stands in found for row in _rows(name_of(shard), stands)]
    rows += [row for shard, shape in tables for row in rows_of(shard, shape)]
    if rows:
        print_table(("SHARD", "PART" if tables else "MIGRATION", "STATE"), rows)


async def _read_migrations(connection: "Connection") -> "MigrationStatus":
    from penstock.store.postgres.migrate import status as read

    return await read(connection)


def names_by_state(stands: "MigrationStatus") -> dict[str, list[str]]:
    """A shard's status, by the names of migrations."""
    return {"applied": [one.name for one in stands.applied], "pending": [one.name for one in stands.pending]}


def _rows(shard: str, stands: "MigrationStatus") -> list[tuple[str, str, str]]:
    from penstock.store.postgres.migrate import migrations

    known = {one.number for one in migrations()}
    applied = [
        (one.name, "applied" if one.number in known else "applied by a newer Penstock") for one in stands.applied
    ]
    pending = [(one.name, style.warned("pending")) for one in stands.pending]
    return [(shard, *row) for row in applied + pending]


@command("migrate", "penstock db migrate", "penstock db migrate --url postgresql://penstock@db1/penstock")
@url_option
@options.config
@options.as_json
def migrate(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """Apply what each shard lacks. Safe to repeat, and from many machines at once; servers may go on running."""
    shards = choose_shards(config, url)
    for shard, applied in run_on_each(shards, _apply_migrations):
        _say_applied(shard, name_of, [one.name for one in applied], "migration", as_json=as_json)
    for shard, before in migrate_tables([shard for shard in shards if is_table(shard)]):
        _say_applied(shard, table_name, before.missing, "part", as_json=as_json)


async def _apply_migrations(connection: "Connection") -> "Sequence[Migration]":
    from penstock.store.postgres.migrate import migrate as apply

    return await apply(connection)


def _say_applied(
    shard: ShardMember, name: Callable[[ShardMember], str], applied: Sequence[str], what: str, *, as_json: bool
) -> None:
    if as_json:
        print_json({"shard": shard.number, "applied": list(applied)})
    elif applied:
        style.say(f"{name(shard)}: applied {what}{'s' if len(applied) > 1 else ''} {', '.join(applied)}")
    else:
        style.say(f"{name(shard)}: up to date")


@command("restored", "penstock db restored", "penstock db restored --url postgresql://penstock@db1/penstock")
@url_option
@click.option("--data", metavar="DIR", help="Folder of the embedded database.  [default: .penstock]")
@options.config
@options.as_json
def restored(*, url: str | None, data: str | None, config: Path | None, as_json: bool) -> None:
    """Say that shards were put back from a backup, so that no lease, outcome or output from before counts.

    What ran by the backup runs again, charged with nothing. Run it before the servers start; those on PostgreSQL may be
    running. Without --url it is about all shards of the settings: name the one if only one was restored.
    """
    settings = options.settings(config, {"store.url": url, "store.shards": () if url else None, "server.data": data})
    for named in configured_shards(settings) or [_embedded_shard(settings)]:
        shard = run(_raise_epoch(named, settings))
        if as_json:
            print_json({"shard": shard.number, "restored": True})
        else:
            style.say(f"{_display_name(shard)}: no lease from before counts any more; what ran waits to run again")


def _embedded_shard(settings: Settings) -> ShardMember:
    from penstock.backends import data_folder
    from penstock.model.ids import ShardId

    return ShardMember(number=ShardId(0), url=f"sqlite://{data_folder(settings) / 'penstock.db'}")


async def _raise_epoch(shard: ShardMember, settings: Settings) -> ShardMember:
    """The shard as its database knows it: a URL alone does not tell its number."""
    from penstock.backends import open_shard

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
    if is_table(shard):
        return shard
    require("postgres")
    from penstock.store.postgres.server_clock import inspect

    found = await inspect(shard.url)
    if found.shard is None and found.pending:
        raise InvalidSetting(f"{name_of(shard)} holds no shard: restore the backup into it first")
    return shard if found.shard is None else structs.replace(shard, number=found.shard)


def _check_there(file: Path) -> None:
    if not file.exists():
        raise InvalidSetting(f"there is no database at {file}: put the backup there, or name its folder with --data")


def _display_name(shard: ShardMember) -> str:
    parts = urlsplit(shard.url)
    if is_table(shard):
        return table_name(shard)
    return f"{shard.number} at {parts.path}" if parts.scheme == "sqlite" else name_of(shard)


@command("sql", "penstock db sql --url postgresql://penstock@db1/penstock > pending.sql")
@url_option
@options.config
@options.as_json
def sql(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """Print the SQL that migrate would run, to be read, or run by somebody who may: `psql -f pending.sql`."""
    require("postgres")
    from penstock.store.postgres.migrate import script

    shards = choose_shards(config, url)
    if any(map(is_table, shards)):
        style.say("tables of DynamoDB are made without SQL: run `penstock db migrate`", err=True)
    for shard, stands in run_on_each(shards, _read_migrations):
        if as_json:
            print_json({"shard": shard.number, "sql": script(stands.pending)})
        elif stands.pending:
            click.echo(f"-- {name_of(shard)}\n{script(stands.pending)}")
        else:
            style.say(f"{name_of(shard)}: up to date", err=True)
