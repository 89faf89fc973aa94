"""Where webhooks may be sent: the form of a URL, and every address that its host has. Pure.

The URLs come from users, and the server may reach what they cannot: metadata of clouds, databases, itself. So only
addresses of the public internet are good, unless a setting allows more.
"""

import re
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from penstock.config.event_settings import WebhookSettings
from penstock.model.errors import Invalid, RefusedAddress
from penstock.model.subscriptions import URL_LENGTH

IpAddress: TypeAlias = IPv4Address | IPv6Address
IpNetwork: TypeAlias = IPv4Network | IPv6Network

ALLOW_SETTING: Final = "webhooks.allow"
HTTP_SETTING: Final = "webhooks.http"

_VISIBLE = re.compile(r"[\x21-\x5b\x5d-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}")
_NUMERIC = re.compile(r"[0-9A-Fa-fXx.]+")
_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
# Reserved, but global in the eyes of one version of Python or another.
_RESERVED = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "fec0::/10",
        "ff00::/8",
    )
)


class AddressRules(Struct, frozen=True, kw_only=True):
    """What is allowed besides https to the public internet: networks, this machine itself, and http.

    Where loopback is allowed, http is too: nothing between the two could read it.
    """

    allow: tuple[IpNetwork, ...] = ()
    loopback: bool = False
    http: bool = False

    def accept(self, address: IpAddress) -> bool:
        """Whether everything that the address stands for may be reached."""
        return all(self._accept_one(one) for one in stands_for(address))

    def accept_http(self, address: IpAddress) -> bool:
        """Whether an accepted address may be reached without encryption."""
        return self.http or (self.loopback and all(one.is_loopback for one in stands_for(address)))

    def _accept_one(self, address: IpAddress) -> bool:
        if any(address in network for network in self.allow):
            return True
        return is_public(address) or (self.loopback and address.is_loopback)


def address_rules(settings: WebhookSettings, *, loopback: bool) -> AddressRules:
    """The rules that settings give. `loopback`: whether only this machine can ask for subscriptions."""
    return AddressRules(allow=tuple(map(ip_network, settings.allow)), loopback=loopback, http=settings.http)


def stands_for(address: IpAddress) -> tuple[IpAddress, ...]:
    """The addresses that packets to this one may end at: those that IPv6 wraps around an IPv4 address are unwrapped."""
    if isinstance(address, IPv4Address):
        return (address,)
    whole = (address.ipv4_mapped or address.sixtofour) or (_low_half(address) if address in _NAT64 else None)
    if whole is not None:
        return (whole,)
    if address.teredo is not None:
        return (address, *address.teredo)
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return (address, _low_half(address))
    return (address,)


def is_public(address: IpAddress) -> bool:
    """Whether an unwrapped address is one host of the public internet."""
    if address.version == 6 and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not any(address in network for network in _RESERVED)


class WebhookUrl(Struct, frozen=True):
    """A URL in parts. `host` has no brackets; `target` is the path with the query."""

    secure: bool
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port, as the Host header names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def check_url(url: str, rules: AddressRules) -> WebhookUrl:
    """The parts of a URL that webhooks may be sent to, as far as its text tells; Invalid says what is wrong with it.

    Its addresses are judged by `check_addresses`, once they are known.
    """
    if len(url) > URL_LENGTH or _VISIBLE.fullmatch(url) is None:
        raise Invalid(f"url: write up to {URL_LENGTH} visible ASCII characters; names of other scripts as xn--…")
    parts = _split(url)
    if parts.scheme not in {"http", "https"}:
        raise Invalid(f"url: {url!r} does not begin with https://")
    if parts.scheme == "http" and not (rules.http or rules.loopback):
        raise Invalid(f"url: {url!r} is not encrypted; use https, or set {HTTP_SETTING} = true")
    if "@" in parts.netloc:
        raise Invalid("url: user names and passwords have no place in it; webhooks are signed instead")
    if parts.fragment or url.endswith("#"):
        raise Invalid(f"url: {url!r} has a fragment (#…), which is never sent; leave it out")
    secure = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookUrl(secure, _host(parts, url), _port(parts, url, default=443 if secure else 80), target)


def check_addresses(host: str, addresses: Iterable[IpAddress], rules: AddressRules, *, secure: bool) -> None:
    """Raise RefusedAddress if one of a host's addresses may not be reached: another lookup might pick that one."""
    for address in addresses:
        if not rules.accept(address):
            raise RefusedAddress(f"url: {_told(host, address)}, which webhooks may not be sent to; {_remedy(address)}")
        if not secure and not rules.accept_http(address):
            wrong = f"{_told(host, address)}, and http would send events there in the clear"
            raise RefusedAddress(f"url: {wrong}; use https, or set {HTTP_SETTING} = true")


def literal(host: str) -> IpAddress | None:
    """The address that a host is written as, in any form that the system's resolver takes: 127.1, 0x7f000001, 0."""
    host = host.removesuffix(".")
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host)) if _NUMERIC.fullmatch(host) else None
    except OSError:
        return None


def _told(host: str, address: IpAddress) -> str:
    ends = [str(one) for one in stands_for(address) if one != address]
    name = f"{host} is" if host != str(address) else "the host is"
    return f"{name} {address}" + (f" (that is {', '.join(ends)})" if ends else "")


def _remedy(address: IpAddress) -> str:
    if any(one.is_loopback for one in stands_for(address)):
        return f"let the server listen on loopback only, or name its network in {ALLOW_SETTING}"
    return f"if it is a network of your own, name that in {ALLOW_SETTING}"


def _low_half(address: IPv6Address) -> IPv4Address:
    """The IPv4 address in the last 32 bits."""
    return IPv4Address(int(address) & 0xFFFF_FFFF)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise Invalid(f"url: {url!r} cannot be read; write https://host/path") from None


def _host(parts: SplitResult, url: str) -> str:
    host = parts.hostname or ""
    bracketed = "[" in parts.netloc
    if not (_is_ipv6(host) if bracketed else _HOST.fullmatch(host)):
        raise Invalid(f"url: {url!r} has no host that can be reached; write https://host/path")
    return host


def _is_ipv6(host: str) -> bool:
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _port(parts: SplitResult, url: str, *, default: int) -> int:
    try:
        port = default if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise Invalid(f"url: {url!r} has no usable port; ports go from 1 to 65535")
    return port
