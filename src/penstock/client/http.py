"""Calls over HTTP. The HTTP library is imported with the first call, so that importing an app stays cheap.

That takes a tenth of a second and more, and so does a TLS context with all the certificates that this machine trusts.
On an event loop both are had in a thread, and where the server speaks plain HTTP there is no certificate to be read.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from penstock.client.calls import Call, Reply
from penstock.client.direct import URL_VARIABLE, home_key
from penstock.client.sinks import BytesSink, Sink
from penstock.model.errors import BY_CODE, Invalid, PenstockError, Refused, ServerUnavailable, TooLarge, Unavailable
from penstock.model.keys import authorization
from penstock.model.wire.jobs import Problem

if TYPE_CHECKING:
    import httpx2


Owner: TypeAlias = tuple[int, object]
"""The process (and event loop) that a connection belongs to: it is never used by another."""

KEY_VARIABLE = "PENSTOCK_KEY"
DEFAULT_URL = "http://127.0.0.1:7373"

CONNECT_TIMEOUT = timedelta(seconds=5)
ANSWER_TIMEOUT = timedelta(seconds=30)
LEAST_CONNECT_TIMEOUT = timedelta(seconds=1)
LEAST_ANSWER_TIMEOUT = timedelta(seconds=10)
"""Longer than a server waits for a shard: it can still say whether the submit was done, and where else it can be."""
CONNECTIONS = 100
_CHUNK = 256 * 1024


def server_url(url: str | None) -> str:
    """The argument, else PENSTOCK_URL, else this machine's default port."""
    chosen = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    if not chosen.startswith(("http://", "https://")):
        raise Invalid(f"{chosen!r} is not the URL of a Penstock server: expected something like {DEFAULT_URL}")
    return chosen.rstrip("/")


def server_key(key: str | None) -> str:
    """The argument, else PENSTOCK_KEY, else none."""
    return os.environ.get(KEY_VARIABLE, "") if key is None else key


def _shown(url: str, key: str | None) -> Callable[[], Mapping[str, str]]:
    """The headers that show the key. An executor's own is known only later where a template imports the app."""
    fixed = authorization(server_key(key))
    if fixed or key is not None:
        return lambda: fixed
    return lambda: authorization(home_key(url))


class HttpTransport:
    """Sends calls to `url`, from any thread, and shows `key` there. None: PENSTOCK_KEY, else, in an executor, its own.

    Connections are kept and reused; a forked child makes its own.
    """

    def __init__(self, url: str, inner: "httpx2.BaseTransport | None" = None, *, key: str | None = "") -> None:
        self.url = url
        self._inner = inner
        self._shown = _shown(url, key)
        self._http: tuple[Owner, httpx2.Client] | None = None

    def send(self, call: Call[Any]) -> Reply:
        http, body = self._open_client(), _chunks(call.body) if isinstance(call.body, Path) else call.body
        with (
            _explained(self.url),
            http.stream(call.method, call.target, content=body, **_manner(call, self._shown())) as response,
            _filling(call, response.status_code) as sink,
        ):
            for chunk in response.iter_bytes():
                sink.write(chunk)
            return Reply(response.status_code, sink.finish(), response.headers)

    def close(self) -> None:
        if self._http is not None:
            self._http[1].close()
            self._http = None

    def _open_client(self) -> "httpx2.Client":
        import httpx2

        owner: Owner = (os.getpid(), None)
        if self._http is None or self._http[0] != owner:
            self._http = owner, httpx2.Client(transport=self._inner, **_options(self.url))
        return self._http[1]


class AsyncHttpTransport:
    """Sends calls to `url` without blocking, and shows `key` there, which None leaves to the surroundings.

    Connections are kept and reused, by each event loop its own.
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

    async def close(self) -> None:
        if self._http is not None:
            (_, made), self._http = self._http, None
            await (await made).aclose()

    async def _open_client(self) -> "httpx2.AsyncClient":
        """The client of this event loop, made by the first call; those that come meanwhile wait for it too."""
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
    """In a thread. Whatever the first request would import is imported here too."""
    import httpx2

    import_module("anyio").run(_nothing)
    return httpx2.AsyncClient(transport=inner, **_options(url))


async def _nothing() -> None: ...


def _options(url: str) -> dict[str, Any]:
    """What a client is made with. At a plain address no certificate is ever looked at: none is trusted."""
    import httpx2

    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    options = {"base_url": url, "limits": limits}
    return options | {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)} if url.startswith("http://") else options


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Trouble on the way as ServerUnavailable: the call may have arrived, unless `sent` says that it has not."""
    import httpx2

    try:
        yield
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        words = str(error) or type(error).__name__
        sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        raise ServerUnavailable(
            f"no answer from {url}: {words}; is `penstock up` running?", url=url, sent=sent
        ) from None


@contextmanager
def _filling(call: Call[Any], status: int) -> Iterator[Sink]:
    """The call's sink for a good answer, a plain one for a problem; nothing is left of a body that broke off."""
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


def _timeout(call: Call[Any]) -> "httpx2.Timeout":
    import httpx2

    answer, connect = ANSWER_TIMEOUT, CONNECT_TIMEOUT
    if call.patience is not None:
        answer = min(answer, max(call.patience, LEAST_ANSWER_TIMEOUT))
        connect = min(connect, max(call.patience, LEAST_CONNECT_TIMEOUT))
    return httpx2.Timeout((answer + call.wait).total_seconds(), connect=connect.total_seconds())


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
    """Something between us and the server answered: a proxy, a load balancer, or another program on that port."""
    told = f"{call.method} {call.path} was answered {reply.status}, by something else than Penstock{excerpt(reply)}"
    if reply.status >= 500 or reply.status in TEMPORARY:
        return ServerUnavailable(told, status=reply.status)
    if reply.status == 413:
        # Whoever says it, less at once may pass.
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
    """Connections of their own: nothing that is meant for Penstock alone goes with them."""

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
