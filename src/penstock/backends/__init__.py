"""Opens the backends that the settings name. A vendor's library is imported only if its URL is configured."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from penstock.broker import Broker
from penstock.broker.memory import MemoryBroker
from penstock.config import Settings
from penstock.engine import Engine
from penstock.model import shards
from penstock.model.clock import Clock, SystemClock, seconds
from penstock.model.errors import InvalidSetting
from penstock.model.extras import require
from penstock.model.ids import SHARDS_MAX, ShardId
from penstock.model.job import Retention
from penstock.model.journal import EventRetention
from penstock.model.shards import ShardMap, ShardMember
from penstock.objects import ObjectStore
from penstock.objects.folder import FolderObjects
from penstock.orchestrator import ShardedStore
from penstock.store import Shard, Store

POSTGRES = frozenset({"postgresql", "postgres"})
"""Schemes of the URLs of PostgreSQL."""
SQS = "sqs"

DYNAMODB = "dynamodb"


@asynccontextmanager
async def open_engine(
    settings: Settings,
    rng: random.Random | None = None,
    store_clock: Clock | None = None,
    *,
    probe_objects: bool = True,
) -> AsyncIterator[Engine]:
    """Open the engine on the backends of the settings; without any, on the data folder, created if missing.

    `rng` makes the ids of jobs; by default one with a seed of its own. By `store_clock` shards are looked after.
    Without `probe_objects` a bucket is probed before the first write.
    """
    require(*engine_extras(settings))
    clock, rng = SystemClock(), rng or random.Random()
    async with AsyncExitStack() as undo:
        store = await open_store(settings, store_clock or clock, rng)
        undo.push_async_callback(store.close)
        objects = await open_objects(settings, clock, probe=probe_objects)
        undo.push_async_callback(objects.close)
        broker = await open_broker(settings, clock)
        undo.pop_all()
        engine = Engine(store, broker, objects, settings, clock, rng)
        undo.push_async_callback(engine.close)
        yield engine


def engine_extras(settings: Settings) -> list[str]:
    """The extras that the store, the broker and the object store of the settings need."""
    urls = [] if embedded(settings) else [member.url for member in shard_map(settings).members.values()]
    needed = {
        "postgres": any(urlsplit(url).scheme in POSTGRES for url in urls),
        "redis": bool(settings.broker.url) and not uses_sqs(settings),
        "s3": bool(settings.objects.url),
        "aws": uses_sqs(settings) or any(urlsplit(url).scheme == DYNAMODB for url in urls),
    }
    return [extra for extra, wanted in needed.items() if wanted]


def uses_sqs(settings: Settings) -> bool:
    """Whether tickets go through SQS."""
    return urlsplit(settings.broker.url).scheme == SQS


def embedded(settings: Settings) -> bool:
    """Whether jobs are kept in the data folder, which one process owns."""
    return not (settings.store.url or settings.store.shards)


def check_shared(settings: Settings, role: str) -> None:
    """Raise InvalidSetting unless store and broker can be used by several processes."""
    if embedded(settings):
        raise InvalidSetting(
            f"store.url: `penstock {role}` is one process of many and needs a store they all reach; "
            "set store.url (or store.shards) to postgresql://… or dynamodb://TABLE, or run everything at once with "
            "`penstock up`"
        )
    if not settings.broker.url:
        raise InvalidSetting(
            f"broker.url: `penstock {role}` is one process of many and needs a broker they all reach; "
            "set it to redis://… or sqs://PREFIX"
        )


def shard_map(settings: Settings) -> ShardMap:
    """The shards that the settings name; InvalidSetting tells which cannot be used."""
    if settings.store.shards:
        return shards.shard_map(_member(entry) for entry in settings.store.shards)
    return shards.shard_map([ShardMember(number=ShardId(0), url=settings.store.url)])


async def open_store(settings: Settings, clock: Clock, rng: random.Random) -> Store:
    """The shards that the settings name behind an orchestrator, or the one in the data folder."""
    if embedded(settings):
        from penstock.store.sqlite import SqliteStore

        path = _create(data_folder(settings)) / "penstock.db"
        return await SqliteStore.open(path, clock=clock, keep_events=settings.events.keep)

    async def open_one(number: ShardId, url: str) -> Shard:
        return await open_shard(number, url, settings, clock)

    deadline = seconds(settings.store.deadline_seconds)
    return await ShardedStore.open(shard_map(settings), open_one, clock, rng, deadline=deadline)


async def open_shard(number: ShardId, url: str, settings: Settings, clock: Clock) -> Shard:
    """One shard by its URL."""
    match urlsplit(url).scheme:
        case "postgresql" | "postgres":
            require("postgres")
            from penstock.store.postgres import PostgresStore

            place = settings.store
            return await PostgresStore.open(
                url,
                shard=number,
                deadline=seconds(place.deadline_seconds),
                connections=place.connections,
                migrate=place.migrate,
                keep_events=settings.events.keep,
            )
        case "sqlite":
            from penstock.store.sqlite import SqliteStore

            path, keep = Path(urlsplit(url).path), settings.events.keep
            return await SqliteStore.open(path, shard=number, clock=clock, keep_events=keep)
        case "dynamodb":
            return await _open_table(number, url, settings)
        case scheme:
            raise InvalidSetting(
                f"store: {scheme or 'a URL without a scheme'} is no store; use postgresql://…, dynamodb://TABLE or "
                "sqlite:///path"
            )


async def _open_table(number: ShardId, url: str, settings: Settings) -> Shard:
    require("aws")
    from penstock.store.dynamodb import DynamoStore
    from penstock.store.dynamodb.address import TableAddress

    address, keep = TableAddress.parse(url), settings.retention
    return await DynamoStore.open(
        address.table,
        shard=number,
        deadline=seconds(settings.store.deadline_seconds),
        migrate=address.create and settings.store.migrate,
        keep_events=settings.events.keep,
        retention=Retention(seconds(keep.succeeded_seconds), seconds(keep.failed_seconds)),
        event_retention=EventRetention(seconds(keep.events_seconds), seconds(keep.history_seconds)),
    )


async def open_broker(settings: Settings, clock: Clock) -> Broker:
    """The broker that the settings name, or one inside this process."""
    if not settings.broker.url:
        return MemoryBroker()
    if uses_sqs(settings):
        return await _open_sqs(settings, clock)
    from penstock.broker.redis import RedisBroker

    deadline = seconds(settings.broker.deadline_seconds)
    return await RedisBroker.open(settings.broker.url, clock, settings.broker.prefix, deadline=deadline)


async def _open_sqs(settings: Settings, clock: Clock) -> Broker:
    from penstock.broker.sqs import QueueTerms, SqsBroker

    place, timing = settings.broker, settings.timing
    terms = QueueTerms(
        create=place.create,
        ticket_for=seconds(timing.redelivered_ticket_seconds),
        depths_age=seconds(timing.depths_seconds),
    )
    prefix = urlsplit(place.url).netloc
    deadline = seconds(place.deadline_seconds)
    return await SqsBroker.open(prefix, clock, terms, deadline=deadline, signals=place.signals == "sns")


async def open_objects(settings: Settings, clock: Clock, *, probe: bool = True) -> ObjectStore:
    """The object store that the settings name, or the folder beside the data."""
    if not settings.objects.url:
        return FolderObjects(_create(data_folder(settings)) / "objects", clock)
    from penstock.objects.s3 import Access, S3Objects

    place = settings.objects
    access = Access(endpoint=place.endpoint or None, public_endpoint=place.public_endpoint or None, region=place.region)
    return await S3Objects.open(place.url, clock, access, probe=probe)


def _member(entry: str) -> ShardMember:
    number, _, url = entry.partition("=")
    if not (number.isdecimal() and int(number) < SHARDS_MAX and url):
        raise InvalidSetting(
            f"store.shards: {number!r} does not begin an entry NUMBER=URL; "
            f"write for example 0=postgresql://db/penstock, with a number below {SHARDS_MAX}"
        )
    return ShardMember(number=ShardId(int(number)), url=url)


def data_folder(settings: Settings) -> Path:
    """The absolute path of the server's data folder."""
    return Path(settings.server.data).expanduser().absolute()


def _create(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(
            f"server.data: cannot use the folder {folder} ({error.strerror}); choose another with --data"
        ) from error
    return folder
