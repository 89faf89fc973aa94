"""The URL of a shard's database, which may name several hosts: taken apart, and shown without its password."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from msgspec import Struct
from psycopg import conninfo

from penstock.model.errors import InvalidSetting

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
