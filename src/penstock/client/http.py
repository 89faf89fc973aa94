"""Calls over HTTP. The HTTP library is imported with the first call that needs it: importing an app stays cheap.

The import takes a tenth of a second or more, and so does a TLS context with all certificates that this machine trusts.
On an event loop a thread does both. For a server that speaks plain HTTP no certificate is read, and short calls of
`HttpTransport` go through `plain_http`.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from penstock.client.calls import Call, Reply, StreamBlock
from penstock.client.environment import server_key, worker_key
from penstock.client.plain_http import CallFailed, PlainHttpClient, Waits
from penstock.client.sinks import BytesSink, Sink
from penstock.model.errors import BY_CODE, PenstockError, Refused, ServerUnavailable, TooLarge, Unavailable
from penstock.model.keys import authorization
from penstock.model.wire.jobs import Problem

if TYPE_CHECKING:
    import httpx2


Owner: TypeAlias = tuple[int, object]
"""The process (and event loop) that a connection belongs to: it is never used by another."""

CONNECT_TIMEOUT = timedelta(seconds=5)
ANSWER_TIMEOUT = timedelta(seconds=30)
LEAST_CONNECT_TIMEOUT = timedelta(seconds=1)
LEAST_ANSWER_TIMEOUT = timedelta(seconds=10)
"""Longer than a server waits for a shard: it can still say whether the submit was done, and where else it can be."""
CONNECTIONS = 100
_CHUNK = 256 * 1024
BLOCK_BYTES = 64 << 20
"""The largest block of a stream: an event with a job item, whose params and result are as large as may be."""


def _shown(url: str, key: str | None) -> Callable[[], Mapping[str, str]]:
    """The authorization headers of each call. A prefork process imports the app before its executors know their key."""
    fixed = authorization(server_key(key))
    if fixed or key is not None:
        return lambda: fixed
    return lambda: authorization(worker_key(url))


class HttpTransport:
    """Sends calls to `url`, from any thread, with the API key `key`. None: PENSTOCK_KEY, else that of the worker.

    Connections are kept and reused; a forked child opens its own.
    """

    def __init__(self, url: str, inner: "httpx2.BaseTransport | None" = None, *, key: str | None = "") -> None:
        self.url = url
        self._inner = inner
        self._shown = _shown(url, key)
        self._http: tuple[Owner, httpx2.Client] | None = None
        self._plain: PlainHttpClient | None = None
        self._is_plain: bool | None = None if inner is None else False

    def send(self, call: Call[Any]) -> Reply:
        if _is_short(call) and (plain := self._open_plain()) is not None:
            return self._send_short(plain, call)
        http, body = self._open_client(), _chunks(call.body) if isinstance(call.body, Path) else call.body
        with (
            _explained(self.url),
            http.stream(call.method, call.target, content=body, **_manner(call, self._shown())) as response,
            _filling(call, response.status_code) as sink,
        ):
            for chunk in response.iter_bytes():
                sink.write(chunk)
            return Reply(response.status_code, sink.finish(), response.headers)

    def stream(self, call: Call[Any]) -> Generator[StreamBlock, None, None]:
        import httpx2

        with (
            _explained(self.url),
            self._open_client().stream(call.method, call.target, **_manner(call, self._shown())) as response,
        ):
            if not response.is_success:
                raise problem_of(call, Reply(response.status_code, response.read(), response.headers))
            for one in httpx2.EventSource(response, BLOCK_BYTES):
                yield StreamBlock(one.event, one.data, one.id)

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()
        if self._http is not None:
            self._http[1].close()
            self._http = None

    def _open_plain(self) -> PlainHttpClient | None:
        """The client for short calls; None if they need more than it can. Decided with the first of them."""
        if self._is_plain is None:
            self._is_plain = PlainHttpClient.reaches(self.url)
            self._plain = PlainHttpClient(self.url) if self._is_plain else None
        return self._plain

    def _send_short(self, plain: PlainHttpClient, call: Call[Any]) -> Reply:
        body = call.body if isinstance(call.body, bytes) else None
        headers = {**_headers(call), **self._shown()}
        try:
            return plain.call(call.method, call.target, body, headers, _waits(call))
        except CallFailed as error:
            raise _no_answer(self.url, str(error), sent=error.sent) from None

    def _open_client(self) -> "httpx2.Client":
        import httpx2

        owner: Owner = (os.getpid(), None)
        if self._http is None or self._http[0] != owner:
            self._http = owner, httpx2.Client(transport=self._inner, **_options(self.url))
        return self._http[1]


class AsyncHttpTransport:
    """`HttpTransport` for asyncio.

    Connections are kept and reused; each event loop has its own.
    """

    def __init__(self, url: str, inner: "httpx2.AsyncBaseTransport | None" = None, *, key: str | None = "") -> None:
        self.url = url
        self._inner = inner
        self._shown = _shown(url, key)
        self._http: tuple[Owner, asyncio.Future[httpx2.AsyncClient]] | None = None

    async def send(self, call: Call[Any]) -> Reply:
        http, body = await self._open_client(), _async_chunks(call.body) if isinstance(call.body, Path) else call.body
        with _explained(self.url):
            async with http.stream(call.method, call.target, content=body, **_manner(call, self._shown())) as response:
                with _filling(call, response.status_code) as sink:
                    async for chunk in response.aiter_bytes():
                        sink.write(chunk)
                    return Reply(response.status_code, sink.finish(), response.headers)

    async def stream(self, call: Call[Any]) -> AsyncGenerator[StreamBlock, None]:
        http = await self._open_client()
        import httpx2

        with _explained(self.url):
            async with http.stream(call.method, call.target, **_manner(call, self._shown())) as response:
                if not response.is_success:
                    raise problem_of(call, Reply(response.status_code, await response.aread(), response.headers))
                async for one in httpx2.EventSource(response, BLOCK_BYTES):
                    yield StreamBlock(one.event, one.data, one.id)

    async def close(self) -> None:
        if self._http is not None:
            (_, made), self._http = self._http, None
            await (await made).aclose()

    async def _open_client(self) -> "httpx2.AsyncClient":
        """The client of this event loop. The first call creates it; concurrent calls wait for it too."""
        owner: Owner = (os.getpid(), asyncio.get_running_loop())
        if self._http is None or self._http[0] != owner:
            self._http = owner, asyncio.ensure_future(asyncio.to_thread(_new_async_client, self.url, self._inner))
        made = self._http[1]
        try:
            # Shielded: a caller that is cancelled leaves the others their client.
            return made.result() if made.done() else await asyncio.shield(made)
        except Exception:
            self._http = None
            raise


def _new_async_client(url: str, inner: "httpx2.AsyncBaseTransport | None") -> "httpx2.AsyncClient":
    """Create a client, in a thread. Imports also what its first request would import."""
    import httpx2

    import_module("anyio").run(_nothing)
    return httpx2.AsyncClient(transport=inner, **_options(url))


async def _nothing() -> None: ...


def _options(url: str) -> dict[str, Any]:
    """The arguments of a client. For plain HTTP no certificate is loaded or trusted."""
    import httpx2

    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    options = {"base_url": url, "limits": limits}
    return options | {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)} if url.startswith("http://") else options


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Raise transport errors as ServerUnavailable. The call may have arrived, unless `sent` is False."""
    import httpx2

    try:
        yield
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        words = str(error) or type(error).__name__
        sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        raise _no_answer(url, words, sent=sent) from None


def _no_answer(url: str, words: str, *, sent: bool) -> ServerUnavailable:
    return ServerUnavailable(f"no answer from {url}: {words}; is `penstock up` running?", url=url, sent=sent)


@contextmanager
def _filling(call: Call[Any], status: int) -> Iterator[Sink]:
    """The call's sink for a good answer, a plain one for a problem. An incomplete body is abandoned."""
    sink = call.sink() if 200 <= status < 300 else BytesSink()
    try:
        yield sink
    except BaseException:
        sink.abandon()
        raise


def _manner(call: Call[Any], authorization: Mapping[str, str]) -> dict[str, Any]:
    return {"headers": {**_headers(call), **authorization}, "timeout": _timeout(call)}


def _headers(call: Call[Any]) -> Mapping[str, str]:
    told = {} if call.body is None else {"content-type": call.content_type}
    return told | {name.lower(): value for name, value in call.headers.items()}


def _is_short(call: Call[Any]) -> bool:
    """Whether both bodies are held in memory."""
    return call.sink is BytesSink and not isinstance(call.body, Path) and PlainHttpClient.takes(call.target)


def _timeout(call: Call[Any]) -> "httpx2.Timeout":
    import httpx2

    waits = _waits(call)
    return httpx2.Timeout(waits.answer, connect=waits.connect)


def _waits(call: Call[Any]) -> Waits:
    answer, connect = ANSWER_TIMEOUT, CONNECT_TIMEOUT
    if call.patience is not None:
        answer = min(answer, max(call.patience, LEAST_ANSWER_TIMEOUT))
        connect = min(connect, max(call.patience, LEAST_CONNECT_TIMEOUT))
    return Waits(connect=connect.total_seconds(), answer=(answer + call.wait).total_seconds())


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


async def _async_chunks(path: Path) -> AsyncIterator[bytes]:
    for chunk in _chunks(path):
        yield chunk


T = TypeVar("T")

PROBLEM_JSON = "application/problem+json"
TEMPORARY = frozenset({408, 425, 429})
"""What a proxy answers to a call that may be passed on later, besides every status from 500 on."""
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises for a body that is not what it should be."""
_EXCERPT = 200


def read(call: Call[T], reply: Reply) -> T:
    """What the call asked for; raises what the server refused it with."""
    if not reply.good:
        raise problem_of(call, reply)
    try:
        return call.decode(reply.body)
    except UNREADABLE as error:
        raise PenstockError(
            f"{call.method} {call.path}: the answer is not Penstock's ({error}); is the URL right, and is the server's "
            f"version this client's?"
        ) from error


def problem_of(call: Call[T], reply: Reply) -> PenstockError:
    """The error a bad answer stands for. `details["retry_after"]` holds the seconds of a Retry-After header."""
    problem = problem_in(reply)
    error = _unexplained(call, reply) if problem is None else error_of(problem)
    note_retry_after(error, reply)
    return error


def problem_in(reply: Reply) -> Problem | None:
    """What the server itself says in a bad answer; None if something else gave the answer."""
    if reply.headers.get("content-type", "").partition(";")[0].strip().lower() != PROBLEM_JSON:
        return None
    try:
        return msgspec.json.decode(reply.body, type=Problem)
    except UNREADABLE:
        return None


def note_retry_after(error: PenstockError, reply: Reply) -> None:
    """Keep the seconds that the answer asks to wait, if it names any, in the error's details."""
    after = reply.headers.get("retry-after", "").strip()
    if after.isascii() and after.isdecimal():
        error.details["retry_after"] = int(after[:9])


def error_of(problem: Problem) -> PenstockError:
    """The error class of the problem's code, with the server's detail as its message."""
    kind = BY_CODE.get(problem.code) or (Unavailable if problem.status >= 500 else Refused)
    return kind(problem.detail or problem.title, status=problem.status, known=problem.known)


def _unexplained(call: Call[T], reply: Reply) -> PenstockError:
    """The error for an answer that is not Penstock's: from a proxy, a load balancer or another program on that port."""
    told = f"{call.method} {call.path} was answered {reply.status}, by something else than Penstock{excerpt(reply)}"
    if reply.status >= 500 or reply.status in TEMPORARY:
        return ServerUnavailable(told, status=reply.status)
    if reply.status == 413:
        # A proxy's limit too may let a smaller body pass.
        return TooLarge(told, status=reply.status)
    return PenstockError(f"{told}; is the URL right?", status=reply.status)


def excerpt(reply: Reply) -> str:
    """The beginning of a body that is not ours, to go into a message."""
    text = reply.body[:_EXCERPT].decode(errors="replace").strip()
    return f": {text}" if text else ""


TRANSFER_SECONDS = 60.0
"""How long a transfer may stand still."""


class TransferBroken(Exception):
    """The object store did not give or take the whole file, or could not be reached."""


class Transfers:
    """Transfers to and from an object store, over separate connections: they carry no API key of Penstock."""

    def __init__(self) -> None:
        self._http: httpx2.AsyncClient | None = None

    async def fetch(self, url: str) -> AsyncIterator[bytes]:
        """The bytes there; TransferBroken where they end too early."""
        import httpx2

        try:
            async with self._connected().stream("GET", url) as answer:
                if not answer.is_success:
                    raise TransferBroken(f"status {answer.status_code}")
                async for chunk in answer.aiter_bytes():
                    yield chunk
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise TransferBroken(str(error) or type(error).__name__) from None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: AsyncIterator[bytes], size: int
    ) -> None:
        """Send the body there; TransferBroken unless it was taken."""
        import httpx2

        told = {**headers, "Content-Length": str(size)}
        try:
            answer = await self._connected().request(method, url, content=body, headers=told)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise TransferBroken(str(error) or type(error).__name__) from None
        if not answer.is_success:
            raise TransferBroken(f"status {answer.status_code}")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    def _connected(self) -> "httpx2.AsyncClient":
        import httpx2

        if self._http is None:
            timeout = httpx2.Timeout(TRANSFER_SECONDS, connect=CONNECT_TIMEOUT.total_seconds())
            self._http = httpx2.AsyncClient(timeout=timeout, trust_env=False)
        return self._http
