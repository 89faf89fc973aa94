"""Opens connections to one database, on whichever of its hosts takes writes. A host that is silent costs its share."""

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection, conninfo, errors
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.errors import ConnectionTimeout
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

from penstock.model.clock import millis
from penstock.model.errors import Invalid, InvalidSetting, StoreUnavailable
from penstock.model.ids import from_bytes
from penstock.store.postgres import arrays
from penstock.store.postgres.statements import Connection

PGBOUNCER = "pgbouncer"
WRITABLE = ("any", "read-write", "primary")
"""What `target_session_attrs` may say: a shard is written to."""


class PostgresHost(Struct, frozen=True):
    """One of the servers that a URL names: how libpq reaches it, and its name for people."""

    conninfo: str
    shown: str


class PostgresAddress(Struct, frozen=True):
    """Where the database is. `pgbouncer`: each transaction may have another session; nothing is kept in one.

    `connect_seconds`: the longest wait for one host that the URL allows; None leaves it to the deadline.
    """

    conninfo: str
    shown: str
    hosts: tuple[PostgresHost, ...]
    options: str = ""
    pgbouncer: bool = False
    connect_seconds: float | None = None

    @classmethod
    def parse(cls, url: str) -> "PostgresAddress":
        """From a URL; its parameter `pgbouncer=true` is ours. InvalidSetting if it is none, without its password."""
        stripped, pooled = _without_ours(url)
        try:
            known = conninfo.conninfo_to_dict(stripped)
            waits = float(str(known.pop("connect_timeout", 0)))
        except (psycopg.ProgrammingError, ValueError):
            raise InvalidSetting(
                "the URL of a PostgreSQL shard must be like postgresql://user@host:5432/name"
            ) from None
        hosts = _hosts(known)
        shown = f"{','.join(host.shown for host in hosts)}/{known.get('dbname', '')}"
        return cls(stripped, shown, hosts, str(known.get("options", "")), pooled, waits if waits > 0 else None)


def _without_ours(url: str) -> tuple[str, bool]:
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(name, value) for name, value in given if name != PGBOUNCER]
    pooled = any(name == PGBOUNCER and value.lower() in ("true", "1", "yes", "on") for name, value in given)
    return urlunsplit(parts._replace(query=urlencode(kept, quote_via=quote))), pooled


def _hosts(known: Mapping[str, Any]) -> tuple[PostgresHost, ...]:
    """Every host in the order of the URL, each with all other parameters.

    Of several the one that takes writes is meant, unless the URL says otherwise: a standby would refuse all of them.
    """
    lists = {name: str(known[name]).split(",") for name in ("host", "hostaddr", "port") if known.get(name)}
    count = max((len(lists[name]) for name in ("host", "hostaddr") if name in lists), default=1)
    if any(len(values) not in ({1, count} if name == "port" else {count}) for name, values in lists.items()):
        raise InvalidSetting("the URL of a PostgreSQL shard must name one port for each of its hosts, or one for all")
    wanted = str(known.get("target_session_attrs") or ("read-write" if count > 1 else "any"))
    if wanted not in WRITABLE:
        raise InvalidSetting(
            f"the URL of a PostgreSQL shard says target_session_attrs={wanted}, and a shard is written to: "
            f"use one of {', '.join(WRITABLE)}"
        )
    return tuple(
        _host({**known, "target_session_attrs": wanted} | {name: part[n % len(part)] for name, part in lists.items()})
        for n in range(count)
    )


def _host(known: Mapping[str, Any]) -> PostgresHost:
    name = known.get("host") or known.get("hostaddr") or "localhost"
    return PostgresHost(conninfo.make_conninfo("", **known), f"{name}:{known.get('port') or 5432}")


PREPARED_MAX = 1000


class Connector:
    """Tries the host first that answered last, and last the one that fell silent: few callers wait for it in vain."""

    def __init__(self, address: PostgresAddress, deadline: timedelta) -> None:
        self.address = address
        self._deadline = deadline
        self._hosts = list(address.hosts)
        self._host_of: WeakKeyDictionary[Connection, PostgresHost] = WeakKeyDictionary()

    async def connect(self) -> Connection:
        """A connection that commits every statement by itself, within the deadline; psycopg.OperationalError if none.

        Each host may take an equal share of the time that is left, or less where the URL says `connect_timeout`.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._deadline.total_seconds()
        faults: list[psycopg.OperationalError] = []
        hosts = list(self._hosts)
        for tried, host in enumerate(hosts):
            share = (ends_at - loop.time()) / (len(hosts) - tried)
            try:
                return await self._try(host, min(share, self.address.connect_seconds or share))
            except psycopg.OperationalError as error:
                faults.append(error)
        raise _combined(hosts, faults)

    async def _try(self, host: PostgresHost, span: float) -> Connection:
        try:
            async with asyncio.timeout(span):
                connection = await _open(host, self.address, self._deadline)
        except TimeoutError:
            self._put_last(host)
            raise ConnectionTimeout(f"no connection within {span:g} s") from None
        self._hosts.sort(key=lambda known: known != host)
        self._host_of[connection] = host
        return connection

    def note_silence(self, connection: Connection) -> None:
        """This connection was left without an answer: try its host last from now on."""
        self._put_last(self._host_of[connection])

    def _put_last(self, host: PostgresHost) -> None:
        self._hosts.sort(key=lambda known: known == host)


def _combined(hosts: list[PostgresHost], faults: list[psycopg.OperationalError]) -> psycopg.OperationalError:
    """What every host said; of one host its own error."""
    if len(faults) == 1:
        return faults[0]
    said = (f"{host.shown}: {str(fault).strip()}" for host, fault in zip(hosts, faults, strict=True))
    return psycopg.OperationalError("; ".join(said))


async def _open(host: PostgresHost, address: PostgresAddress, deadline: timedelta) -> Connection:
    connection = await AsyncConnection.connect(
        host.conninfo,
        autocommit=True,
        prepare_threshold=None if address.pgbouncer else 0,
        application_name="penstock",
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


FAULTS = (psycopg.IntegrityError, psycopg.DataError)
"""What breaks an invariant of the tables; the fault of what was to be kept."""

RETRIED = (errors.DeadlockDetected, errors.SerializationFailure)
"""The server undid it all by itself, and it may be done again."""

# libpq tells the SQLSTATE of no connection that failed, so there are only words: the server's own and PgBouncer's.
_EXHAUSTED = re.compile(r"too many (?:clients|connections)|connection slots are reserved|no more connections allowed")


class HeldElsewhere(StoreUnavailable):
    """What is needed is in a transaction of somebody else, who does not end it; it concerns only who needs it."""


def unavailable(address: PostgresAddress, error: BaseException | str, *, sent: bool = True) -> StoreUnavailable:
    """What a caller is told about an outage: which database, and what was said; no password is in either.

    `sent`: the server may have been asked, and may have done it.
    """
    said = str(error).strip().replace("\n", " ") or type(error).__name__
    if isinstance(error, errors.LockNotAvailable):
        return HeldElsewhere(f"a transaction at {address.shown} holds what is needed: {said}; end it, then try again")
    return StoreUnavailable(
        f"the store at {address.shown} cannot be used now: {said}; check the server, then try again", sent=sent
    )


def is_exhausted(error: psycopg.OperationalError) -> bool:
    """Whether the server answered that it gives no more connections for now."""
    return _EXHAUSTED.search(str(error)) is not None


def is_stale(error: psycopg.Error) -> bool:
    """Whether `penstock.fenced_clock` refused a move, because the shard's epoch has to be raised first."""
    return error.sqlstate == "PSEPO"


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
