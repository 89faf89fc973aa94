"""The ASGI application of the page, in front of the API's."""

from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.dashboard.built_files import BUILT, NO_SUCH_FILE, NOT_BUILT, SAFE, BuiltFiles, PageAnswer

PATH = "/ui/"
_TO_PAGE = PageAnswer(307, ((b"location", b"ui/"), (b"cache-control", b"no-store"), *SAFE), b"")
_READS = ("GET", "HEAD")


class PageApp:
    """Answers below `/ui/`, and sends browsers there that ask for `/`; everything else is the API's."""

    def __init__(self, api: ASGIApp, folder: Path = BUILT) -> None:
        self._api = api
        self._files = BuiltFiles(folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer(scope) if scope["type"] == "http" and scope["method"] in _READS else None
        if answer is None:
            await self._api(scope, receive, send)
        else:
            await _send(answer, send, headers_only=scope["method"] == "HEAD")

    def _answer(self, scope: Scope) -> PageAnswer | None:
        path: str = scope["path"]
        if path.startswith(PATH):
            return self._answer_below(path.removeprefix(PATH), scope)
        return _TO_PAGE if path == "/ui" or (path == "/" and _is_browser(scope)) else None

    def _answer_below(self, rest: str, scope: Scope) -> PageAnswer:
        built = self._files.read()
        if built is None:
            return NOT_BUILT
        if rest in built.files:
            return built.files[rest].answer(gzip=_takes_gzip(scope))
        if rest.endswith((".js", ".css", ".svg", ".map")) and "/" not in rest:
            return NO_SUCH_FILE
        return built.answer_index(rest.count("/"))


def _is_browser(scope: Scope) -> bool:
    return b"text/html" in _header(scope, b"accept")


def _takes_gzip(scope: Scope) -> bool:
    offers = (one.strip().partition(b";") for one in _header(scope, b"accept-encoding").lower().split(b","))
    return any(name == b"gzip" and weight.replace(b" ", b"") not in {b"q=0", b"q=0.0"} for name, _, weight in offers)


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


async def _send(answer: PageAnswer, send: Send, *, headers_only: bool) -> None:
    headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if headers_only else answer.body})
