"""Calls over HTTP. The HTTP library is imported with the first call, so that importing an app stays cheap."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.client.calls import Call, Reply
from penstock.client.home import URL_VARIABLE, home_key
from penstock.client.sinks import BytesSink, Sink
from penstock.model.errors import Invalid, ServerUnavailable
from penstock.model.keys import authorization

if TYPE_CHECKING:
    import httpx2

Owner: TypeAlias = tuple[int, object]
"""The process (and event loop) that a connection belongs to: it is never used by another."""

KEY_VARIABLE = "PENSTOCK_KEY"
DEFAULT_URL = "http://127.0.0.1:7373"

CONNECT_TIMEOUT = timedelta(seconds=5)
ANSWER_TIMEOUT = timedelta(seconds=30)
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
        http, body = self._connected(), _chunks(call.body) if isinstance(call.body, Path) else call.body
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

    def _connected(self) -> "httpx2.Client":
        import httpx2

        owner: Owner = (os.getpid(), None)
        if self._http is None or self._http[0] != owner:
            self._http = owner, httpx2.Client(base_url=self.url, transport=self._inner, limits=_limits())
        return self._http[1]


class AsyncHttpTransport:
    """Sends calls to `url` without blocking, and shows `key` there, which None leaves to the surroundings.

    Connections are kept and reused, by each event loop its own.
    """

    def __init__(self, url: str, inner: "httpx2.AsyncBaseTransport | None" = None, *, key: str | None = "") -> None:
        self.url = url
        self._inner = inner
        self._shown = _shown(url, key)
        self._http: tuple[Owner, httpx2.AsyncClient] | None = None

    async def send(self, call: Call[Any]) -> Reply:
        http, body = self._connected(), _async_chunks(call.body) if isinstance(call.body, Path) else call.body
        with _explained(self.url):
            async with http.stream(call.method, call.target, content=body, **_manner(call, self._shown())) as response:
                with _filling(call, response.status_code) as sink:
                    async for chunk in response.aiter_bytes():
                        sink.write(chunk)
                    return Reply(response.status_code, sink.finish(), response.headers)

    async def close(self) -> None:
        if self._http is not None:
            await self._http[1].aclose()
            self._http = None

    def _connected(self) -> "httpx2.AsyncClient":
        import httpx2

        owner: Owner = (os.getpid(), asyncio.get_running_loop())
        if self._http is None or self._http[0] != owner:
            self._http = owner, httpx2.AsyncClient(base_url=self.url, transport=self._inner, limits=_limits())
        return self._http[1]


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

    patient = (ANSWER_TIMEOUT + call.wait).total_seconds()
    return httpx2.Timeout(patient, connect=CONNECT_TIMEOUT.total_seconds())


def _limits() -> "httpx2.Limits":
    import httpx2

    return httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


async def _async_chunks(path: Path) -> AsyncIterator[bytes]:
    for chunk in _chunks(path):
        yield chunk
