"""The plain HTTP client of short calls: what it sends, which answers it reads, and when a connection is used again."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client import Client, plain_http
from penstock.client.calls import Call
from penstock.client.http import HttpTransport
from penstock.client.plain_http import CallFailed, PlainHttpClient, Waits
from penstock.model.errors import NotFound, ServerUnavailable

WAITS = Waits(connect=5.0, answer=5.0)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


Answer = bytes | list[bytes]
CLOSE = b""


class ScriptedServer:
    """Answers the requests of each connection in turn with its script, piece by piece; CLOSE closes the connection."""

    def __init__(self, *connections: list[Answer]) -> None:
        self._script = connections
        self.requests: list[bytes] = []
        self.opened = 0
        self._link: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        for answers in self._script:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self.opened += 1
            self._link = link
            self._threads.append(threading.Thread(target=self._answer_all, args=(link, answers), daemon=True))
            self._threads[-1].start()

    def _answer_all(self, link: socket.socket, answers: list[Answer]) -> None:
        with link:
            for answer in answers:
                if answer == CLOSE or not self._take_request(link):
                    return
                for piece in [answer] if isinstance(answer, bytes) else answer:
                    link.sendall(piece)
            link.recv(1)

    def _take_request(self, link: socket.socket) -> bool:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (piece := link.recv(65536)):
                return False
            head += piece
        before, _, body = head.partition(b"\r\n\r\n")
        lengths = [line for line in before.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        while len(body) < (int(lengths[0].split(b":")[1]) if lengths else 0):
            body += link.recv(65536)
        self.requests.append(before + b"\r\n\r\n" + body)
        return True

    def wait_until_closed(self) -> None:
        """Return once the first connection is closed."""
        self._threads[1].join(10)

    def hang_up(self) -> None:
        """Close the connection that is being answered."""
        if self._link is not None:
            self._link.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "ScriptedServer":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread that accepts, where a test ended before all connections of the script.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@contextmanager
def client_of(server: ScriptedServer) -> Iterator[PlainHttpClient]:
    client = PlainHttpClient(server.url)
    try:
        yield client
    finally:
        client.close()


def post(client: PlainHttpClient, body: bytes = b"{}") -> tuple[int, bytes]:
    reply = client.call("POST", "/v1/jobs", body, {"content-type": "application/json"}, WAITS)
    return reply.status, reply.body


def fail_to_post(client: PlainHttpClient) -> None:
    with pytest.raises(CallFailed):
        post(client)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        pytest.param(OK, 200, b"ok", id="of known length"),
        pytest.param([OK[:5], OK[5:40], OK[40:]], 200, b"ok", id="in pieces"),
        pytest.param(
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n",
            201,
            b"abcde",
            id="in chunks",
        ),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok", id="after another head"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", id="without a body"),
        pytest.param(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, b"", id="refused"),
    ],
)
def test_an_answer_is_read_whole_and_its_connection_used_again(
    answer: bytes | list[bytes], status: int, body: bytes
) -> None:
    with ScriptedServer([answer, OK]) as server, client_of(server) as client:
        assert post(client) == (status, body)
        assert post(client) == (200, b"ok")
    assert server.opened == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: Close\r\n\r\nok", id="that says so"),
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", id="of HTTP/1.0"),
        pytest.param(OK + b"more", id="with bytes after its end"),
    ],
)
def test_a_connection_is_not_used_again_after_an_answer(answer: bytes) -> None:
    with ScriptedServer([answer], [OK]) as server, client_of(server) as client:
        assert post(client) == (200, b"ok")
        assert post(client) == (200, b"ok")
    assert server.opened == 2


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    pieces: Answer = [b"HTTP/1.1 200 OK\r\n\r\n", b"all", b" of it"]
    with ScriptedServer([pieces, CLOSE], [OK]) as server, client_of(server) as client:
        assert post(client) == (200, b"all of it")
        assert post(client) == (200, b"ok")


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    with ScriptedServer([OK, CLOSE], [OK]) as server, client_of(server) as client:
        assert post(client) == (200, b"ok")
        server.wait_until_closed()
        assert post(client) == (200, b"ok")
    assert server.opened == 2


def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([OK], [OK]) as server, client_of(server) as client:
        assert post(client) == (200, b"ok")
        monkeypatch.setattr(plain_http, "IDLE_SECONDS", 0.0)
        assert post(client) == (200, b"ok")
    assert server.opened == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([], id="none"),
        pytest.param([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"], id="cut short"),
        pytest.param([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc"], id="cut in a chunk"),
        pytest.param([b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"], id="of no length"),
        pytest.param([b"HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n"], id="of no status"),
        pytest.param([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"], id="of another protocol"),
        pytest.param([b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 12_000], id="of an endless head"),
    ],
)
def test_an_answer_that_cannot_be_read_leaves_open_whether_the_call_was_carried_out(answer: list[bytes]) -> None:
    with ScriptedServer([answer, CLOSE], [OK]) as server, client_of(server) as client:
        with pytest.raises(CallFailed) as failed:
            post(client)
        assert failed.value.sent
        assert post(client) == (200, b"ok")


def test_a_server_that_cannot_be_reached_was_sent_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = PlainHttpClient(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(CallFailed, match="refused") as failed:
            post(client)
    assert not failed.value.sent


def test_a_server_that_does_not_answer_in_time_may_have_carried_the_call_out() -> None:
    with ScriptedServer([[]]) as server, client_of(server) as client:
        with pytest.raises(CallFailed, match="timed out") as failed:
            client.call("GET", "/v1/jobs", None, {}, Waits(connect=5.0, answer=0.05))
        assert failed.value.sent


def test_a_refusal_of_a_body_that_is_not_read_to_its_end_is_read() -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(100)
                link.sendall(refusal)
                link.shutdown(socket.SHUT_WR)
                while link.recv(1 << 20):
                    """A close with unread data would reset the connection before the answer is read."""

        thread = threading.Thread(target=refuse)
        thread.start()
        client = PlainHttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert post(client, b"x" * (4 << 20)) == (413, b"")
        thread.join(10)


def test_no_value_of_a_header_begins_another_line() -> None:
    client = PlainHttpClient("http://127.0.0.1:9")
    with pytest.raises(CallFailed, match="line break") as failed:
        client.call("GET", "/v1/jobs", None, {"x": "1\r\nauthorization: Bearer y"}, WAITS)
    assert not failed.value.sent


def test_all_threads_together_have_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_http, "CONNECTIONS", 1)
    with ScriptedServer([[]]) as server, client_of(server) as client:
        waiting = threading.Thread(target=fail_to_post, args=(client,))
        waiting.start()
        while not server.requests:
            threading.Event().wait(0.001)
        with pytest.raises(CallFailed, match="in use") as failed:
            client.call("GET", "/v1/jobs", None, {}, Waits(connect=5.0, answer=0.01))
        assert not failed.value.sent
        server.hang_up()
        waiting.join(10)


def test_a_forked_child_opens_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([OK, OK], [OK]) as server, client_of(server) as client, client_of(server) as child:
        assert post(client) == (200, b"ok")
        vars(child).update(vars(client))
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert post(child) == (200, b"ok")
        assert server.opened == 2
        monkeypatch.undo()
        assert post(client) == (200, b"ok")
        assert server.opened == 2


def test_the_sdk_sends_short_calls_this_way_and_reads_problems() -> None:
    problem = b'{"type":"about:blank","title":"t","status":404,"code":"not_found","detail":"no such job"}'
    told = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n\r\n"
    with (
        ScriptedServer([told % len(problem) + problem]) as server,
        Client(f"{server.url}/below", patience=0) as client,
        pytest.raises(NotFound, match="no such job"),
    ):
        client.get("0190a6e2-0000-7000-8000-000000000000")
    (request,) = server.requests
    assert request.startswith(b"GET /below/v1/jobs/0190a6e2-0000-7000-8000-000000000000 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"content-length" not in request


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_is_respected(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with ScriptedServer([OK]) as server:
        monkeypatch.setenv(name, server.url)
        transport = HttpTransport("http://penstock.invalid")
        assert transport.send(Call("GET", "/healthz", bytes)).body == b"ok"
        transport.close()
    (request,) = server.requests
    assert request.startswith(b"GET http://penstock.invalid/healthz HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("url", "plain"),
    [("http://host:7373/below", True), ("https://host", False), ("http://user:password@host", False), ("", False)],
)
def test_only_plain_http_without_a_password_goes_this_way(
    monkeypatch: pytest.MonkeyPatch, url: str, plain: bool
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert PlainHttpClient.reaches(url) is plain


def test_a_target_that_http_could_not_carry_goes_another_way() -> None:
    assert PlainHttpClient.takes("/v1/jobs/1?wait=3")
    assert not PlainHttpClient.takes("/v1/jobs/1 HTTP/1.1")
    assert not PlainHttpClient.takes("/v1/jobs/ü")


def test_a_server_that_is_gone_is_explained_as_before() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerUnavailable, match="is `penstock up` running") as failed:
            HttpTransport(url).send(Call("GET", "/healthz", bytes))
    assert failed.value.unsent
