"""Opens connections to one database, on the host that takes writes. A silent host costs only its share of time."""

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
    """One of the servers that a URL names: its libpq parameters, and its name in messages."""

    conninfo: str
    shown: str


class PostgresAddress(Struct, frozen=True):
    """Where the database is. `pgbouncer`: each transaction may run in another session, so no session state is kept.

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

    Of several hosts the one that takes writes is wanted, unless the URL says otherwise: a standby refuses writes.
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
    """Tries the host that answered most recently first, and a host that stopped answering last."""

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
        """This connection got no answer: try its host last from now on."""
        self._put_last(self._host_of[connection])

    def _put_last(self, host: PostgresHost) -> None:
        self._hosts.sort(key=lambda known: known == host)


def _combined(hosts: list[PostgresHost], faults: list[psycopg.OperationalError]) -> psycopg.OperationalError:
    """The errors of all hosts as one; of a single host its own error."""
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
    """Session settings. The server gives up shortly before the caller does, so that no abandoned statement runs on.

    lock_timeout: half of that, so that a batch that waited for one call's lock can be run again without that call.
    jit off: hot statements are short, whatever the planner estimates. enable_seqscan off: a plan made while the tables
    were small is kept while they grow, and every statement has its index. plan_cache_mode: a custom plan seems cheaper
    because it prunes partitions, but is planned anew each time; the generic plan prunes them at run time.
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
    """Loads uuid columns as job ids, which are text in Python."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return from_bytes(bytes(data))


def _adapt(adapters: AdaptersMap) -> None:
    """Send integers as bigint always: sized by value, each size would prepare the statement again."""
    adapters.register_loader("uuid", _JobIdLoader)
    adapters.register_dumper(int, Int8BinaryDumper)
    arrays.register(adapters)


FAULTS = (psycopg.IntegrityError, psycopg.DataError)
"""Constraint violations: the fault of the values that were to be stored."""

RETRIED = (errors.DeadlockDetected, errors.SerializationFailure)
"""The server rolled the transaction back by itself; it may be run again."""

# libpq gives no SQLSTATE for a connection that failed, so the texts of the server and of PgBouncer are matched.
_EXHAUSTED = re.compile(r"too many (?:clients|connections)|connection slots are reserved|no more connections allowed")


class HeldElsewhere(StoreUnavailable):
    """Another open transaction holds a lock that this call needs. It concerns only the calls that need the lock."""


def unavailable(address: PostgresAddress, error: BaseException | str, *, sent: bool = True) -> StoreUnavailable:
    """The error for an outage: which database, and what it said; neither contains a password.

    `sent`: the statement may have reached the server and been carried out.
    """
    said = str(error).strip().replace("\n", " ") or type(error).__name__
    if isinstance(error, errors.LockNotAvailable):
        return HeldElsewhere(f"a transaction at {address.shown} holds what is needed: {said}; end it, then try again")
    return StoreUnavailable(
        f"the store at {address.shown} cannot be used now: {said}; check the server, then try again", sent=sent
    )


def is_exhausted(error: psycopg.OperationalError) -> bool:
    """Whether the server said that it has no connection left."""
    return _EXHAUSTED.search(str(error)) is not None


def is_stale(error: psycopg.Error) -> bool:
    """Whether `penstock.fenced_clock` refused a move, because the shard's epoch has to be raised first."""
    return error.sqlstate == "PSEPO"


def refused(error: Exception) -> Exception:
    """The error for the caller at fault: Invalid where a constraint was violated, else the error itself."""
    if isinstance(error, FAULTS):
        return Invalid(f"the store cannot keep this: {error.diag.message_primary or error}")
    return error


def is_outage(error: BaseException) -> bool:
    """Whether the error comes from the server, the driver or the network; any other error is one call's fault."""
    return isinstance(error, psycopg.Error | OSError) and not isinstance(error, FAULTS)


def is_unexpected(error: BaseException) -> bool:
    """Whether the driver itself raised it, for another reason than a lost connection: most likely a fault of ours."""
    if not isinstance(error, psycopg.Error) or isinstance(error, (psycopg.OperationalError, *FAULTS)):
        return False
    return error.sqlstate is None
