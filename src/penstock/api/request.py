"""One request and its reply, straight on ASGI: nothing is parsed that the endpoint does not ask for."""

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct
from starlette.types import Message, Receive, Scope, Send

from penstock.api.bodies import check_json, decode_json, refuse_announced, too_large
from penstock.api.cookies import check_session, read_session
from penstock.engine import Engine
from penstock.engine.keys import bearer, require
from penstock.model.clock import Instant, utc
from penstock.model.errors import Invalid, Malformed, NotFound
from penstock.model.ids import JobId, parse_job_id
from penstock.model.keys import ApiKey, KeyIdText, KeyScope
from penstock.model.names import Name, whole
from penstock.model.request_ids import HEADER
from penstock.model.shards import ShardNumber

if TYPE_CHECKING:
    from penstock.api.exposition import Traffic
    from penstock.events.live import LiveFeed
    from penstock.events.streams import Streams


JOB_ID = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
is_job_id = re.compile(JOB_ID).fullmatch

KINDS: Mapping[str, Any] = {
    "job": Annotated[str, whole(JOB_ID, max_length=36)],
    "queue": Name,
    "type": Name,
    "worker": Name,
    "schedule": Name,
    "scheduler": Name,
    "fleet": Name,
    "subscription": Name,
    "key": KeyIdText,
    # Of a file that is looked for: one that cannot exist is as unknown as any other.
    "name": Annotated[str, Meta(min_length=1, max_length=255)],
    "fence": Annotated[int, Meta(ge=1, le=2**53)],
    "shard": ShardNumber,
    "number": Annotated[int, Meta(ge=0, le=9999)],
}


def read_part(name: str, text: str) -> Any:
    """A part as its kind; Invalid names it."""
    try:
        return msgspec.convert(text, KINDS[name], strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"path: {name}: {error}") from None


T = TypeVar("T")

_MOST = 32


def read_query(raw: bytes, kind: type[T]) -> T:
    """The parameters as a struct; Invalid names the one that is unknown, doubled or not acceptable."""
    if not raw:
        return kind()
    try:
        return msgspec.convert(_parameters(raw), kind, strict=False)
    except msgspec.ValidationError as error:
        words = str(error).replace("Object contains unknown field", "there is no parameter").replace("`$.", "`")
        raise Invalid(f"query: {words}") from None


InstantText = Annotated[str, Meta(description="RFC 3339, with an offset.", extra_json_schema={"format": "date-time"})]
"""An instant in a query. Text, as a number would otherwise be read as seconds since 1970, and `null` as none."""


def read_instant(name: str, text: str) -> datetime:
    """The instant of a query's parameter; Invalid names the parameter."""
    try:
        return utc(name, msgspec.convert(text, Instant))
    except msgspec.ValidationError:
        raise Invalid(f"query: {name}: {text[:40]!r} is not an instant; write 2026-01-31T12:00:00Z") from None


def refuse_query(raw: bytes) -> NoReturn:
    """For an operation that has no parameters."""
    names = ", ".join(_parameters(raw)) or raw.decode("latin-1")
    raise Invalid(f"query: this takes no parameters, but got {names}")


def _parameters(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST)
    except ValueError:
        raise Invalid(f"query: not URL-encoded UTF-8 of at most {_MOST} parameters") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise Invalid(f"query: {next(name for name in names if names.count(name) > 1)} is given more than once")
    return found


Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
NO_HEADERS: Headers = ()

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"

_encode = msgspec.json.Encoder().encode


class ClientGone(Exception):
    """The client hung up: no answer can be sent."""


class AnswerBroken(Exception):
    """The body of an answer ended early, after its status went out; `__cause__` says why."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class UnsupportedMediaType(Malformed):
    """A JSON body was expected and something else was announced; answered as 415."""


class ApiRequest:
    """One request. Each part is read and checked when it is asked for, and refused as the problem it is.

    `key` is the API key that it was admitted with; None where none was shown and none is needed.
    """

    __slots__ = ("_admitted", "_headers", "_receive", "engine", "key", "live", "scope", "streams", "traffic")

    def __init__(
        self, engine: Engine, traffic: "Traffic", streams: "Streams", live: "LiveFeed", scope: Scope, receive: Receive
    ) -> None:
        self.engine = engine
        self.live = live
        self.traffic = traffic
        self.streams = streams
        self.scope = scope
        self.key: ApiKey | None = None
        self._admitted: tuple[KeyScope, ...] = ()
        self._receive = receive
        # Of a header that comes twice the first counts.
        self._headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))

    async def admit(self, scopes: tuple[KeyScope, ...], *, always: bool = False) -> None:
        """Let the request in if its key has one of the scopes; Unauthorized or Forbidden if not.

        With `always` a key is needed also on a server that otherwise needs none.
        """
        self._admitted = scopes
        self.key = await self.engine.keys.admit(await self._authorization(), scopes, always=always)

    async def readmit(self) -> None:
        """Check the key again, for an answer that goes on: it may have been revoked or have expired."""
        await self.engine.keys.admit(await self._authorization(), self._admitted)

    async def _authorization(self) -> str | None:
        """The header with the key; for a browser that is signed in, its session, if this is a request of our page.

        A server that needs no key ignores sessions that are over, also those of another server of this machine.
        """
        shown = self.header(b"authorization")
        if b"cookie" not in self._headers or bearer(shown) is not None:
            return shown
        session = read_session(self.scope["headers"])
        if session is None or not (self.engine.keys.required or await self.engine.keys.knows(session)):
            return shown
        check_session(self.scope, session)
        return f"Bearer {session}"

    def shown_key(self) -> ApiKey:
        """The API key that it was admitted with, for an operation that always needs one."""
        if self.key is None:
            raise RuntimeError("this operation was admitted without a key")
        return self.key

    def may(self, scope: KeyScope) -> bool:
        """Whether the key has this scope too; anything may be done where none was needed."""
        return self.key is None or self.key.allows((scope,))

    def require(self, scope: KeyScope) -> None:
        """Raise Forbidden unless the key has this scope too: for a body that asks for more than its operation does."""
        require(self.key, (scope,))

    def path(self, name: str) -> Any:
        """A variable part of the path, as the kind it has in `KINDS`; Invalid if it cannot be that."""
        return read_part(name, self.scope["path_params"][name])

    def job(self) -> JobId:
        """The path's job id; an id that cannot exist is as unknown as any other."""
        try:
            return parse_job_id(self.scope["path_params"]["job"])
        except Invalid as error:
            raise NotFound(error.message) from None

    def query(self, kind: type[T]) -> T:
        """The query as a struct; Invalid names the parameter that is unknown, doubled or out of range."""
        return read_query(self.scope["query_string"], kind)

    def header(self, name: bytes) -> str | None:
        """The value of a header, by its name in lower case; None when it was not sent."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def json(self, kind: type[T]) -> T:
        """The body as a struct. Malformed when it is not strict JSON, Invalid when it is of another shape."""
        limits = self.engine.settings.limits
        if self._headers.get(b"content-type") != b"application/json":
            self._require_json()
        body = await self._read_whole(limits.body_bytes)
        check_json(body, limits.depth, limits.values)
        return decode_json(body, kind)

    def _require_json(self) -> None:
        media_type = (self.header(b"content-type") or "").partition(";")[0].strip().lower()
        if media_type != JSON:
            raise UnsupportedMediaType(f"the body must be {JSON}, not {media_type or 'without a Content-Type'}")

    def file(self) -> AsyncIterator[bytes]:
        """The body in chunks, as they arrive. TooLarge at once when its announced length is above the limit."""
        refuse_announced(self.header(b"content-length"), self.engine.settings.limits.file_bytes, "limits.file_bytes")
        return self._read_chunks()

    async def _read_whole(self, limit: int) -> bytes:
        refuse_announced(self.header(b"content-length"), limit, "limits.body_bytes")
        body, more = await self._read_piece()
        # Counted too: an announced length may be missing (chunked) or wrong.
        size, rest = len(body), []
        while more and size <= limit:
            chunk, more = await self._read_piece()
            rest.append(chunk)
            size += len(chunk)
        if size > limit:
            raise too_large(limit, "limits.body_bytes")
        return b"".join((body, *rest)) if rest else body

    async def _read_chunks(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            chunk, more = await self._read_piece()
            if chunk:
                yield chunk

    async def _read_piece(self) -> tuple[bytes, bool]:
        """The next part of the body, and whether there is more."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    async def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work` and return its result; if the client hangs up first, cancel it and raise ClientGone."""
        waiting = asyncio.ensure_future(work)
        try:
            if await self.stays_for(waiting):
                return waiting.result()
            raise ClientGone
        finally:
            waiting.cancel()

    async def stays_for(self, work: "asyncio.Future[Any]") -> bool:
        """Wait until `work` is done (True) or the client hangs up (False). The body must have been read."""
        leaving = asyncio.ensure_future(self._wait_for_disconnect())
        try:
            await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
            return not leaving.done()
        finally:
            leaving.cancel()

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class AnyReply(Protocol):
    """What an operation answers with. `is_timed`: how long it takes is worth measuring."""

    @property
    def status(self) -> int: ...

    @property
    def is_timed(self) -> bool: ...

    async def send(self, send: Send, request: bytes, *, headers_only: bool = False) -> None: ...


class ApiReply(Struct, frozen=True):
    """An answer. A body in chunks needs its length among the headers."""

    is_timed: ClassVar[bool] = True
    status: int
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str | None = None
    headers: Headers = ()

    async def send(self, send: Send, request: bytes, *, headers_only: bool = False) -> None:
        """Send it as the answer to the request of this id."""
        named = (HEADER, request)
        if isinstance(self.body, bytes):
            await send(self._start((b"content-length", b"%d" % len(self.body)), named))
            await send({"type": "http.response.body", "body": b"" if headers_only else self.body})
        elif headers_only:
            await send(self._start(named))
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._stream(send, self.body, named)

    async def _stream(self, send: Send, chunks: AsyncIterator[bytes], named: tuple[bytes, bytes]) -> None:
        """Send one chunk behind what was read.

        A file that cannot be read at all, or is damaged and of one chunk, is then still answered as a problem, and one
        whose digest turns out wrong at its end is cut short, so that no client takes it for whole.
        """
        held, following = await anext(chunks, b""), await anext(chunks, None)
        await send(self._start(named))
        try:
            while following is not None:
                await send({"type": "http.response.body", "body": held, "more_body": True})
                held, following = following, await anext(chunks, None)
            await send({"type": "http.response.body", "body": held})
        except Exception as error:
            raise AnswerBroken(self.status) from error

    def _start(self, *more: tuple[bytes, bytes]) -> Message:
        headers = [*more, *self.headers]
        if self.content_type is not None:
            headers.append(_CONTENT_TYPES.get(self.content_type) or _content_type(self.content_type))
        return {"type": "http.response.start", "status": self.status, "headers": headers}


def _content_type(value: str) -> tuple[bytes, bytes]:
    return b"content-type", value.encode("latin-1")


_CONTENT_TYPES = {JSON: _content_type(JSON)}


def json_reply(status: int, value: object, headers: Headers = (), content_type: str = JSON) -> ApiReply:
    return ApiReply(status, _encode(value), content_type, headers)


NO_CONTENT = ApiReply(204)
