"""How a shard's database is reached, and which of PostgreSQL's errors mean that the shard is unavailable."""

from datetime import timedelta
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection, conninfo, errors
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

from penstock.model.errors import Invalid, InvalidSetting, StoreUnavailable
from penstock.model.ids import from_bytes
from penstock.model.timing import millis
from penstock.store.postgres import arrays
from penstock.store.postgres.statements import Connection

FAULTS = (psycopg.IntegrityError, psycopg.DataError)
"""What breaks an invariant of the tables; the fault of what was to be kept."""

AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
"""The server undid it all by itself, and it may be done again."""

PREPARED_MAX = 1000
PGBOUNCER = "pgbouncer"


class HeldElsewhere(StoreUnavailable):
    """What is needed is in a transaction of somebody else, who does not end it; it concerns only who needs it."""


class Address(Struct, frozen=True):
    """Where the database is. `pgbouncer`: each transaction may have another session; nothing is kept in one."""

    conninfo: str
    shown: str
    options: str = ""
    pgbouncer: bool = False

    @classmethod
    def parse(cls, url: str) -> "Address":
        """From a URL; its parameter `pgbouncer=true` is ours. InvalidSetting if it is none, without its password."""
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True)
        kept = [(name, value) for name, value in given if name != PGBOUNCER]
        pooled = any(name == PGBOUNCER and value.lower() in ("true", "1", "yes", "on") for name, value in given)
        stripped = urlunsplit(parts._replace(query=urlencode(kept, quote_via=quote)))
        try:
            known = conninfo.conninfo_to_dict(stripped)
        except psycopg.ProgrammingError:
            raise InvalidSetting(
                "the URL of a PostgreSQL shard must be like postgresql://user@host:5432/name"
            ) from None
        shown = f"{known.get('host', 'localhost')}:{known.get('port', 5432)}/{known.get('dbname', '')}"
        return cls(stripped, shown, str(known.get("options", "")), pooled)


async def connect(address: Address, deadline: timedelta) -> Connection:
    """A connection that commits every statement by itself; the caller bounds the wait."""
    connection = await AsyncConnection.connect(
        address.conninfo,
        autocommit=True,
        prepare_threshold=None if address.pgbouncer else 0,
        application_name="penstock",
        connect_timeout=max(2, round(deadline.total_seconds())),
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=2 * millis(deadline),
        client_encoding="utf8",
        options=address.options if address.pgbouncer else f"{_options(deadline)} {address.options}",
    )
    connection.prepared_max = PREPARED_MAX
    _adapt(connection.adapters)
    return connection


def unavailable(address: Address, error: BaseException | str) -> StoreUnavailable:
    """What a caller is told about an outage: which database, and what was said; no password is in either."""
    said = str(error).strip().replace("\n", " ") or type(error).__name__
    if isinstance(error, errors.LockNotAvailable):
        return HeldElsewhere(f"a transaction at {address.shown} holds what is needed: {said}; end it, then try again")
    return StoreUnavailable(
        f"the store at {address.shown} cannot be used now: {said}; check the server, then try again"
    )


def refused(error: Exception) -> Exception:
    """What the caller at fault is told: Invalid for what breaks an invariant of the tables, else the error itself."""
    if isinstance(error, FAULTS):
        return Invalid(f"the store cannot keep this: {error.diag.message_primary or error}")
    return error


def is_outage(error: BaseException) -> bool:
    """Whether it is of the server, its tables' absence or the network; every other error is the fault of one call."""
    if isinstance(error, psycopg.ProgrammingError):
        return error.sqlstate is not None
    return isinstance(error, psycopg.Error | OSError) and not isinstance(error, FAULTS)


def _options(deadline: timedelta) -> str:
    """The server gives up a little before the caller does, so that nothing runs on that nobody waits for.

    lock_timeout: half of that, so that a batch which waited for one call's lock can be done again without it.
    jit: a hot statement is short, however dear its estimate. enable_seqscan: a plan made while the tables were small is
    kept while they grow; every walk worth having has its index. plan_cache_mode: a plan for the values at hand leaves
    out partitions and so seems cheaper, but is made anew each time; the one for all leaves them out when it starts.
    """
    span = millis(deadline) * 4 // 5
    settings = {
        "statement_timeout": span,
        "lock_timeout": span // 2,
        "idle_in_transaction_session_timeout": span,
        "jit": "off",
        "enable_seqscan": "off",
        "plan_cache_mode": "force_generic_plan",
        "timezone": "UTC",
    }
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


class _JobIdLoader(Loader):
    """Every uuid is the id of a job, which is text to us."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return from_bytes(bytes(data))


def _adapt(adapters: AdaptersMap) -> None:
    """Integers are always bigint: sized by their value, each size would be prepared anew."""
    adapters.register_loader("uuid", _JobIdLoader)
    adapters.register_dumper(int, Int8BinaryDumper)
    arrays.register(adapters)
