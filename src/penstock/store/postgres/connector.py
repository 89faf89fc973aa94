"""Opens connections to one database, on whichever of its hosts takes writes. A host that is silent costs its share."""

import asyncio
from datetime import timedelta
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.errors import ConnectionTimeout
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper

from penstock.model.ids import from_bytes
from penstock.model.timing import millis
from penstock.store.postgres import arrays
from penstock.store.postgres.address import PostgresAddress, PostgresHost
from penstock.store.postgres.statements import Connection

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
