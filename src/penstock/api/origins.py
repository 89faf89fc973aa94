"""Hosts and origins as headers name them, and whether a browser says that our own page asked."""

import ipaddress
import re
from collections.abc import Iterable
from typing import TypeAlias

Authority: TypeAlias = tuple[str, int | None]
"""A host in its one spelling, and the port if one is said."""

_HOST = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)]|(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?)(?::(?P<port>[0-9]{0,5}))?"
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
SAME_ORIGIN = ([b"same-origin"], [b"none"])
"""What a browser says of the site of a request that our own page, or its user alone, has made."""


def parse_host(text: str) -> Authority | None:
    """A Host header's host and port; None if it is not one."""
    found = _HOST.fullmatch(text.lower())
    if found is None:
        return None
    try:
        host = found["name"] or plain_host(str(ipaddress.IPv6Address(found["address"])))
    except ValueError:
        return None
    return host, int(found["port"]) if found["port"] else None


def plain_host(host: str) -> str:
    """A host in one spelling: lower case, without a final dot or brackets, addresses as Python writes them."""
    name = host.lower().strip("[]").removesuffix(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_origin_of(authority: Authority, origin: bytes) -> bool:
    """Whether a page of this origin came from that host and port. TLS may have ended at a proxy."""
    scheme, _, rest = origin.decode("latin-1").partition("://")
    default, theirs = _DEFAULT_PORTS.get(scheme), parse_host(rest)
    if default is None or theirs is None:
        return False
    return (theirs[0], theirs[1] or default) == (authority[0], authority[1] or default)


def is_same_origin(headers: Iterable[tuple[bytes, bytes]], *, must_say: bool) -> bool:
    """Whether a browser sent this for a page of ours. `must_say`: not if it says nothing of the page at all.

    `Sec-Fetch-Site` counts first: the browser itself has compared the origins, with the host that its user sees.
    """
    told: dict[bytes, list[bytes]] = {b"sec-fetch-site": [], b"origin": [], b"host": []}
    for name, value in headers:
        if name in told:
            told[name].append(value)
    if sites := told[b"sec-fetch-site"]:
        return sites == [b"same-origin"] or (not must_say and sites == [b"none"])
    if not told[b"origin"]:
        return not must_say
    hosts = [parse_host(host.decode("latin-1")) for host in told[b"host"]]
    known = hosts[0] if len(hosts) == 1 else None
    return known is not None and all([is_origin_of(known, origin) for origin in told[b"origin"]])
