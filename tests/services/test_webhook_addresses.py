"""Where webhooks go: the table of addresses, on check and on delivery, against resolvers and sinks that mean harm."""

import asyncio
import gzip
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from penstock.config.event_settings import WebhookSettings
from penstock.events import AddressRules, Delivered, Rejected, Unreachable, WebhookNotifier
from penstock.events.addresses import IpAddress, address_rules, check_url, literal
from penstock.events.network import PinnedBackend, SystemResolver
from penstock.events.webhook import DeliveryDeadlines
from penstock.model.clock import SystemClock
from penstock.model.errors import Invalid, RefusedAddress, UnresolvedHost
from penstock.model.subscriptions import WebhookSink
from tests.webhook_events import outgoing, subscription
from tests.webhook_sink import LocalSink, endless, local_sink, reply

PUBLIC = "93.184.215.14"
STRICT = AddressRules()
HERE = AddressRules(loopback=True)
QUICK = DeliveryDeadlines(connect=timedelta(seconds=1), answer=timedelta(seconds=5))

REFUSED = [
    "127.0.0.1",
    "127.1",
    "127.0.0.1.",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "017700000001",
    "0177.0.0.1",
    "0",
    "0.0.0.0",  # noqa: S104 - no address to bind to
    "0.1.2.3",
    "10.0.0.1",
    "10.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a00:1]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[2001:0:4136:e378:8000:63bf:5601:5601]",
    "[2001::1]",
    "[2606:2800:220:1::5efe:7f00:1]",
    "[2606:2800:220:1:200:5efe:a9fe:a9fe]",
    "[100::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[5f00::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[4000::1]",
]
"""Hosts that lead, or may lead, to something other than one host of the public internet."""

PUBLIC_HOSTS = [
    (PUBLIC, PUBLIC),
    ("8.8.8.8", "8.8.8.8"),
    ("0x08080808", "8.8.8.8"),
    ("[2606:2800:220:1:248:1893:25c8:1946]", "2606:2800:220:1:248:1893:25c8:1946"),
    ("[::ffff:8.8.8.8]", "::ffff:808:808"),
    ("[64:ff9b::808:808]", "64:ff9b::808:808"),
    ("[2002:808:808::1]", "2002:808:808::1"),
]


class ScriptedResolver:
    """Gives the prepared answers one after the other, the last one again and again."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str) -> list[IpAddress]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [ip_address(one) for one in answer]


class RecordingNetwork(httpcore2.AsyncNetworkBackend):
    """Records which addresses are connected to. `leads_to`: the port on loopback that all connections go to instead."""

    def __init__(self, leads_to: int | None = None, broken: Iterable[str] = ()) -> None:
        self.asked: list[str] = []
        self.leads_to = leads_to
        self.broken = set(broken)

    async def connect_tcp(self, host: str, port: int, *others: Any, **named: Any) -> httpcore2.AsyncNetworkStream:
        self.asked.append(host)
        if self.leads_to is None or host in self.broken:
            raise httpcore2.ConnectError("there is no network in this test")
        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.leads_to, *others, **named)


@pytest.fixture
async def sink() -> AsyncIterator[LocalSink]:
    async with local_sink() as sink:
        yield sink


def notifier(rules: AddressRules = STRICT, **parts: Any) -> WebhookNotifier:
    return WebhookNotifier(rules, "penstock", SystemClock(), **{"deadlines": QUICK} | parts)


# -- the table


@pytest.mark.parametrize("host", REFUSED)
async def test_a_host_that_is_no_public_address_is_refused_on_check(host: str) -> None:
    with pytest.raises(RefusedAddress, match=r"webhooks\.allow"):
        await notifier().check(WebhookSink(f"https://{host}/hook"))


@pytest.mark.parametrize("host", REFUSED)
async def test_a_host_that_is_no_public_address_is_refused_on_delivery(host: str) -> None:
    network = RecordingNetwork()
    delivery = await notifier(network=network).deliver(subscription(f"https://{host}:8443/"), [outgoing()])
    assert isinstance(delivery, Unreachable)
    assert "may not be sent to" in delivery.detail
    assert network.asked == []


@pytest.mark.parametrize("host", REFUSED)
async def test_a_name_with_such_an_address_is_refused_on_check_and_on_delivery(host: str) -> None:
    address = literal(host.strip("[]"))
    network, resolver = RecordingNetwork(), ScriptedResolver([str(address)])
    sender = notifier(network=network, resolver=resolver)
    with pytest.raises(RefusedAddress, match=r"hooks\.example is"):
        await sender.check(WebhookSink("https://hooks.example/"))
    assert isinstance(await sender.deliver(subscription("https://hooks.example/"), [outgoing()]), Unreachable)
    assert network.asked == []
    assert resolver.asked == ["hooks.example"] * 2


@pytest.mark.parametrize(("host", "address"), PUBLIC_HOSTS)
async def test_a_public_address_is_connected_to(host: str, address: str) -> None:
    network = RecordingNetwork()
    sender = notifier(network=network)
    await sender.check(WebhookSink(f"https://{host}/hook"))
    await sender.deliver(subscription(f"https://{host}/hook"), [outgoing()])
    assert network.asked == [address]


@pytest.mark.parametrize("other", ["10.0.0.1", "127.0.0.1", "::1", "169.254.169.254", "fe80::1%2"])
async def test_a_name_with_one_bad_address_among_good_ones_is_refused(other: str) -> None:
    for answer in ([PUBLIC, other], [other, PUBLIC], [PUBLIC, "8.8.8.8", PUBLIC, "8.8.4.4", other]):
        network = RecordingNetwork()
        sender = notifier(network=network, resolver=ScriptedResolver(answer))
        with pytest.raises(RefusedAddress):
            await sender.check(WebhookSink("https://hooks.example/"))
        await sender.deliver(subscription("https://hooks.example/"), [outgoing()])
        assert network.asked == []


# -- resolvers


async def test_a_name_whose_address_is_another_one_after_the_check_is_refused_on_delivery() -> None:
    network, resolver = RecordingNetwork(), ScriptedResolver([PUBLIC], ["169.254.169.254"])
    sender = notifier(network=network, resolver=resolver)
    await sender.check(WebhookSink("https://hooks.example/"))
    delivery = await sender.deliver(subscription("https://hooks.example/"), [outgoing()])
    assert isinstance(delivery, Unreachable)
    assert "169.254.169.254" in delivery.detail
    assert network.asked == []


async def test_the_address_that_was_judged_is_the_one_connected_to(sink: LocalSink) -> None:
    network, resolver = RecordingNetwork(sink.port), ScriptedResolver([PUBLIC], ["169.254.169.254"])
    sender = notifier(AddressRules(http=True), network=network, resolver=resolver)
    for _ in range(3):
        delivery = await sender.deliver(subscription("http://hooks.example/"), [outgoing()])
        assert isinstance(delivery, Delivered)
    assert resolver.asked == ["hooks.example"]
    assert network.asked == [PUBLIC]
    assert {one.headers["host"] for one in sink.requests} == {"hooks.example"}
    await sender.close()


async def test_every_new_connection_is_judged_again(sink: LocalSink) -> None:
    network, resolver = RecordingNetwork(sink.port), ScriptedResolver([PUBLIC], ["10.0.0.1"])
    sender = notifier(AddressRules(http=True), network=network, resolver=resolver)
    sink.answers.append(reply(200, connection="close"))
    outcomes = [await sender.deliver(subscription("http://hooks.example/"), [outgoing()]) for _ in range(2)]
    assert [type(one) for one in outcomes] == [Delivered, Unreachable]
    assert network.asked == [PUBLIC]


async def test_the_next_address_is_tried_if_one_does_not_answer(sink: LocalSink) -> None:
    network = RecordingNetwork(sink.port, broken=[PUBLIC])
    sender = notifier(AddressRules(http=True), network=network, resolver=ScriptedResolver([PUBLIC, "8.8.8.8"]))
    assert isinstance(await sender.deliver(subscription("http://hooks.example/"), [outgoing()]), Delivered)
    assert network.asked == [PUBLIC, "8.8.8.8"]
    await sender.close()


@pytest.mark.parametrize("answer", [[], OSError("Name or service not known"), UnicodeError("label too long")])
async def test_a_name_without_an_address_is_refused_on_check_and_unreachable_on_delivery(answer: Any) -> None:
    def look_up(host: str) -> Sequence[IpAddress]:
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    sender = notifier(resolver=SystemResolver(look_up))
    with pytest.raises(UnresolvedHost, match=r"hooks\.example has no address"):
        await sender.check(WebhookSink("https://hooks.example/"))
    assert isinstance(await sender.deliver(subscription("https://hooks.example/"), [outgoing()]), Unreachable)


class SlowLookup:
    """Answers for names that begin with `slow` once it is released; at once for others."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked: list[str] = []
        self.threads: set[str] = set()

    def __call__(self, host: str) -> Sequence[IpAddress]:
        self.asked.append(host)
        self.threads.add(threading.current_thread().name)
        if host.startswith("slow"):
            self.released.wait(30)
        return [ip_address(PUBLIC)]


@pytest.fixture
def slow() -> Iterable[SlowLookup]:
    lookup = SlowLookup()
    yield lookup
    lookup.released.set()


async def test_a_resolver_that_does_not_answer_is_given_up_after_its_deadline(slow: SlowLookup) -> None:
    backend = PinnedBackend(STRICT, SystemResolver(slow), secure=True)
    with pytest.raises(UnresolvedHost, match=r"no answer within 0\.05 s"):
        await backend.find_addresses("slow.example", timedelta(seconds=0.05))
    delivery = await notifier(
        resolver=SystemResolver(slow), deadlines=DeliveryDeadlines(connect=timedelta(seconds=0.05))
    ).deliver(subscription("https://slow.example/"), [outgoing()])
    assert isinstance(delivery, Unreachable)


async def test_a_slow_name_keeps_one_thread_and_no_thread_of_the_loop(slow: SlowLookup) -> None:
    backend = PinnedBackend(STRICT, SystemResolver(slow, most=2), secure=True)
    waiting = [asyncio.create_task(backend.find_addresses("slow.example")) for _ in range(20)]
    assert await backend.find_addresses("quick.example") == [ip_address(PUBLIC)]
    assert not any(task.done() for task in waiting)
    slow.released.set()
    assert await asyncio.gather(*waiting) == [[ip_address(PUBLIC)]] * 20
    assert sorted(slow.asked) == ["quick.example", "slow.example"]
    assert slow.threads == {"webhook-dns"}


async def test_threads_that_slow_names_keep_are_bounded_and_come_back(slow: SlowLookup) -> None:
    resolver = SystemResolver(slow, most=2)
    backend = PinnedBackend(STRICT, resolver, secure=True)
    brief = timedelta(seconds=0.05)
    for number in range(4):
        with pytest.raises(UnresolvedHost):
            await backend.find_addresses(f"slow{number}.example", brief)
    assert slow.asked == ["slow0.example", "slow1.example"]
    slow.released.set()
    for number in range(4, 8):
        assert await backend.find_addresses(f"slow{number}.example")


async def test_the_resolver_of_this_machine_knows_localhost() -> None:
    found = await SystemResolver().resolve("localhost")
    assert found
    assert all(one.is_loopback for one in found)


# -- rules


def test_networks_of_settings_become_rules() -> None:
    rules = address_rules(WebhookSettings(allow=("10.0.0.0/8", "fd00::/8"), http=True), loopback=True)
    assert rules == AddressRules(allow=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")), loopback=True, http=True)


@pytest.mark.parametrize("host", ["10.1.2.3", "[::ffff:10.1.2.3]", "[64:ff9b::a01:203]", "10.66051"])
async def test_an_allowed_network_is_allowed_in_every_form(host: str) -> None:
    rules = AddressRules(allow=(ip_network("10.0.0.0/8"),))
    await notifier(rules).check(WebhookSink(f"https://{host}/"))
    with pytest.raises(RefusedAddress):
        await notifier(rules).check(WebhookSink("https://192.168.0.1/"))
    with pytest.raises(RefusedAddress, match=r"webhooks\.http"):
        await notifier(AddressRules(allow=rules.allow, loopback=True)).check(WebhookSink(f"http://{host}/"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "0x7f000001", "localhost"])
async def test_loopback_is_allowed_where_the_server_is_on_loopback_also_without_https(host: str) -> None:
    for scheme in ("http", "https"):
        await notifier(HERE).check(WebhookSink(f"{scheme}://{host}:8000/"))
        with pytest.raises(Invalid):
            await notifier().check(WebhookSink(f"{scheme}://{host}:8000/"))


@pytest.mark.parametrize("host", ["0", "169.254.169.254", "10.0.0.1", "[::]"])
async def test_loopback_allows_nothing_else(host: str) -> None:
    with pytest.raises(RefusedAddress):
        await notifier(HERE).check(WebhookSink(f"https://{host}/"))


async def test_http_is_refused_where_events_would_leave_this_machine(sink: LocalSink) -> None:
    network = RecordingNetwork(sink.port)
    sender = notifier(HERE, network=network, resolver=ScriptedResolver([PUBLIC]))
    with pytest.raises(RefusedAddress, match=r"webhooks\.http = true"):
        await sender.check(WebhookSink("http://hooks.example/"))
    assert isinstance(await sender.deliver(subscription("http://hooks.example/"), [outgoing()]), Unreachable)
    assert network.asked == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "visible ASCII"),
        ("example.com", "does not begin with https://"),
        ("//example.com/", "does not begin with https://"),
        ("ftp://example.com/", "does not begin with https://"),
        ("file:///etc/passwd", "does not begin with https://"),
        ("http://example.com/", r"webhooks\.http"),
        ("https://", "no host"),
        ("https:///path", "no host"),
        ("https://:443/", "no host"),
        ("https://user@example.com/", "user names and passwords"),
        ("https://user:pass@example.com/", "user names and passwords"),
        ("https://@example.com/", "user names and passwords"),
        ("https://example.com@169.254.169.254/", "user names and passwords"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com/#", "fragment"),
        ("https://example.com:0/", "port"),
        ("https://example.com:65536/", "port"),
        ("https://example.com:x/", "port"),
        ("https://exa mple.com/", "visible ASCII"),
        ("https://example.com/\r\nx-evil: 1", "visible ASCII"),
        ("https://example.com\t/", "visible ASCII"),
        ("https://example.com\\@127.0.0.1/", "visible ASCII"),
        ("https://①②⑦.⓪.⓪.①/", "visible ASCII"),
        ("https://bücher.example/", "xn--"),
        ("https://[::1/", "cannot be read"),
        ("https://[fe80::1%25eth0]/", "no host|cannot be read"),
        ("https://[127.0.0.1]/", "no host|cannot be read"),
        ("https://exa%6dple.com/", "no host"),
        ("https://" + "a" * 254 + "/", "no host"),
        ("https://example.com/" + "a" * 2048, "up to 2048"),
    ],
)
async def test_a_url_that_cannot_be_used_is_refused_on_check_and_on_delivery(url: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        await notifier().check(WebhookSink(url))
    assert isinstance(await notifier().deliver(subscription(url), [outgoing()]), Unreachable)


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("https://example.com", "example.com", "/"),
        ("https://EXAMPLE.com:443/a?b=c&d", "example.com", "/a?b=c&d"),
        ("https://example.com:8443?x", "example.com:8443", "/?x"),
        ("https://[2606:2800:220:1::1]:8443/", "[2606:2800:220:1::1]:8443", "/"),
    ],
)
def test_the_parts_of_a_url(url: str, authority: str, target: str) -> None:
    parts = check_url(url, STRICT)
    assert (parts.authority, parts.target) == (authority, target)


# -- sinks that mean harm


async def test_a_redirect_to_the_metadata_address_is_just_a_refusal(sink: LocalSink) -> None:
    network = RecordingNetwork(sink.port)
    sink.answers.append(reply(302, location="http://169.254.169.254/latest/meta-data/"))
    sender = notifier(HERE, network=network)
    delivery = await sender.deliver(subscription(sink.url), [outgoing()])
    assert isinstance(delivery, Rejected)
    assert (delivery.status, network.asked) == (302, ["127.0.0.1"])
    await sender.close()


@pytest.mark.parametrize("status", [200, 500])
async def test_of_a_gigabyte_little_is_read(sink: LocalSink, status: int) -> None:
    sent: list[int] = []
    sink.answers.append(endless(status, b"x" * 65536, sent, 1 << 30))
    sender = notifier(HERE)
    delivery = await sender.deliver(subscription(sink.url), [outgoing()])
    assert isinstance(delivery, Delivered if status == 200 else Rejected)
    await asyncio.wait_for(sink.hung_up.wait(), 5)
    # What the sockets of both sides hold besides the 64 KiB that are read.
    assert sent[0] < 16 << 20
    assert not isinstance(delivery, Rejected) or delivery.detail == "x" * 1024


async def test_a_compressed_answer_is_not_unpacked(sink: LocalSink) -> None:
    bomb = gzip.compress(b"\0" * (10 << 20))
    sink.answers.append(reply(500, bomb, content_encoding="gzip"))
    sender = notifier(HERE)
    delivery = await sender.deliver(subscription(sink.url), [outgoing()])
    assert isinstance(delivery, Rejected)
    assert delivery.detail == bomb[:1024].decode(errors="replace").strip()
    await sender.close()


async def test_endless_headers_are_given_up(sink: LocalSink) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-more: " + b"y" * 8000 + b"\r\n")
            await writer.drain()

    sink.answers.append(answer)
    delivery = await notifier(HERE).deliver(subscription(sink.url), [outgoing()])
    assert isinstance(delivery, Unreachable)
    await asyncio.wait_for(sink.hung_up.wait(), 5)


async def test_proxies_of_the_environment_are_not_used(sink: LocalSink, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    sender = notifier(HERE)
    assert isinstance(await sender.deliver(subscription(sink.url), [outgoing()]), Delivered)
    assert sink.requests[0].line.startswith("POST /hook")
    await sender.close()


# -- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for hooks.example, and its key."""
    if shutil.which("openssl") is None and not os.environ.get("CI"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    wanted = ["-subj", "/CN=hooks.example", "-addext", "subjectAltName=DNS:hooks.example", "-days", "2", "-nodes"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *wanted]
    subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=30)
    return cert, key


class TlsSink:
    """A sink behind TLS, which records the names that clients ask for."""

    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self.names: list[str | None] = []
        self.sink = LocalSink()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*certificate)
        self.context.sni_callback = lambda _socket, name, _context: self.names.append(name)


@pytest.fixture
async def tls_sink(certificate: tuple[Path, Path]) -> AsyncIterator[TlsSink]:
    sink = TlsSink(certificate)
    server = await asyncio.start_server(sink.sink.serve, "127.0.0.1", 0, ssl=sink.context)
    sink.sink.port = server.sockets[0].getsockname()[1]
    yield sink
    server.close()


async def test_the_name_stays_the_name_for_tls(tls_sink: TlsSink, certificate: tuple[Path, Path]) -> None:
    network, resolver = RecordingNetwork(tls_sink.sink.port), ScriptedResolver([PUBLIC])
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    sender = notifier(network=network, resolver=resolver, tls=trust)
    assert isinstance(await sender.deliver(subscription("https://hooks.example/"), [outgoing()]), Delivered)
    assert (network.asked, tls_sink.names) == ([PUBLIC], ["hooks.example"])
    await sender.close()
    await tls_sink.sink.hung_up.wait()


@pytest.mark.parametrize(("host", "trusted"), [("hooks.example", False), ("other.example", True)])
async def test_a_certificate_that_does_not_fit_gets_no_events(
    tls_sink: TlsSink, certificate: tuple[Path, Path], host: str, trusted: bool
) -> None:
    network, resolver = RecordingNetwork(tls_sink.sink.port), ScriptedResolver([PUBLIC])
    trust = ssl.create_default_context(cafile=str(certificate[0])) if trusted else None
    sender = notifier(network=network, resolver=resolver, tls=trust)
    delivery = await sender.deliver(subscription(f"https://{host}/"), [outgoing()])
    assert isinstance(delivery, Unreachable)
    assert "certificate" in delivery.detail.lower()
    assert tls_sink.sink.requests == []
