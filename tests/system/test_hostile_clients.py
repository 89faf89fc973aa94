"""A real server and clients that mean no good: its memory stays as it is, and everybody else is answered."""

import socket
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from penstock.client import Client
from tests.system.harness import WITHIN, Server, ending

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
CONNECTIONS = 20


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), WITHIN)


def resident(server: Server) -> int:
    rss: int = psutil.Process(server.popen.pid).memory_info().rss
    return rss


def answer(client: socket.socket) -> bytes:
    """All that comes until the end, whichever way it ends."""
    said = b""
    try:
        while piece := client.recv(65536):
            said += piece
    except ConnectionError:
        pass
    return said


def test_a_head_of_200_mib_is_not_kept(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--no-workers", app=None)
    with ending(server), connect(server) as client:
        before = resident(server)
        client.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(ConnectionError):
            client.sendall(b"x" * (200 * MIB))
        assert resident(server) - before < 16 * MIB
        with Client(server.url) as other:
            assert other.health().status == "ok"


def test_connections_are_bounded_and_the_host_is_looked_at_however_it_is_asked(tmp_path: Path) -> None:
    environ = {"PENSTOCK_SERVER_CONNECTIONS": str(CONNECTIONS)}
    server = Server(tmp_path / "data", "--no-workers", app=None, environ=environ)
    with ending(server):
        with ExitStack() as crowd:
            for _ in range(CONNECTIONS):
                crowd.enter_context(connect(server))
            with connect(server) as surplus:
                surplus.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = answer(surplus)
            assert said.startswith(b"HTTP/1.1 503 ")
            assert b"server_busy" in said
        for target in (b"/v1/jobs", b"http://localhost/v1/jobs"):
            with connect(server) as rebound:
                rebound.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
                assert answer(rebound).startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 404 "))
