"""The shipped nginx before a server that needs keys: bodies pass through it, and none is written to its disk."""

import re
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from penstock.client import Client
from penstock.config.settings import LimitSettings
from penstock.runtime.tcp import ANSWER_SECONDS, BODY_SECONDS, HEAD_BYTES, HEAD_SECONDS
from servers import Nginx
from servers.nginx import SHIPPED
from tests.servers_fixtures import real_servers
from tests.system.harness import WITHIN, Server, ending
from tests.system.test_keys import first_key

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
ANNOUNCED = 600 * MIB
SENT = 2 * MIB
UNITS = {"": 1, "k": 1024, "m": MIB, "g": 1024 * MIB}
KEYED = {"PENSTOCK_SERVER_KEYS": "required", "PENSTOCK_SERVER_ALLOW_UNKNOWN_TYPES": "true"}
BUFFERED = "is buffered to a temporary file"
"""What nginx logs, as a warning, for each body that it writes to its disk."""


class Guarded(NamedTuple):
    """A server that needs keys, behind nginx."""

    nginx: Nginx
    admin: str

    @property
    def buffered(self) -> bool:
        log = self.nginx.folder / "error.log"
        kept = [file for file in (self.nginx.folder / "body").rglob("*") if file.is_file()]
        return bool(kept) or BUFFERED in log.read_text()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    admin = first_key(data)
    with real_servers() as folder:
        server = Server(data, "--no-workers", app=None, environ=KEYED)
        with ending(server), Nginx(folder, [server.port]) as nginx:
            yield Guarded(nginx, admin)


def answer_to(nginx: Nginx, path: str, announced: int, sent: int) -> bytes:
    """The head and body of the answer to a POST of which so many bytes were sent, and no more come."""
    with socket.create_connection(("127.0.0.1", nginx.port), WITHIN) as client:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {announced}\r\n\r\n".encode())
        client.sendall(b"x" * sent)
        # Well below the time after which nginx gives up on a body.
        client.settimeout(10)
        return client.recv(65536)


def test_a_large_upload_without_a_key_is_refused_before_it_is_sent(guarded: Guarded) -> None:
    said = answer_to(guarded.nginx, "/v1/uploads", ANNOUNCED, SENT)
    assert said.startswith(b"HTTP/1.1 401 ")
    assert b"urn:penstock:problem:unauthorized" in said
    assert not guarded.buffered


def test_json_without_a_key_is_refused_before_it_is_sent(guarded: Guarded) -> None:
    said = answer_to(guarded.nginx, "/v1/jobs", LimitSettings().body_bytes, SENT)
    assert said.startswith(b"HTTP/1.1 401 ")
    assert not guarded.buffered


def test_json_beyond_the_servers_limit_is_refused_by_nginx_as_the_server_would(guarded: Guarded) -> None:
    said = answer_to(guarded.nginx, "/v1/jobs", LimitSettings().body_bytes + 1, 0)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in said
    assert b'"code":"too_large"' in said


def test_an_upload_with_a_key_passes_through_without_touching_nginxs_disk(guarded: Guarded) -> None:
    with Client(guarded.nginx.url, key=guarded.admin, patience=0) as ops:
        assert ops.upload("large", b"x" * 24 * MIB).size == 24 * MIB
        # A JSON body above nginx's buffer in memory.
        assert ops.submit("anything", {"text": "y" * MIB}).id
    assert not guarded.buffered


def test_the_limits_of_nginx_are_those_of_the_server() -> None:
    limits = LimitSettings()
    assert {amount(value) for value in shipped("client_max_body_size")} == {limits.body_bytes, limits.file_bytes}
    (buffers,) = shipped("large_client_header_buffers")
    number, size = buffers.split()
    assert int(number) * amount(size) == HEAD_BYTES
    assert shipped("client_header_timeout") == [f"{HEAD_SECONDS:.0f}s"]
    assert shipped("client_body_timeout") == [f"{BODY_SECONDS:.0f}s"]
    assert shipped("send_timeout") == [f"{ANSWER_SECONDS:.0f}s"]


def shipped(directive: str) -> list[str]:
    """Every value of a directive in the shipped file."""
    return re.findall(rf"^ *{directive} ([^;]+);", SHIPPED.read_text(), re.MULTILINE)


def amount(words: str) -> int:
    """A size as nginx writes it."""
    number, unit = re.fullmatch(r"(\d+)([kmg]?)", words).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]
