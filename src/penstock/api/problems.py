"""Errors as RFC 9457 problems: a status for each branch of the error tree, and the error's own stable code."""

from collections.abc import Iterable
from http import HTTPStatus

from penstock.api.request import ApiReply, Headers, UnsupportedMediaType, json_reply
from penstock.model.errors import (
    ChooseShard,
    Conflict,
    Forbidden,
    Invalid,
    JournalGone,
    Malformed,
    NotFound,
    NotServed,
    PenstockError,
    Refused,
    RequestTimeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from penstock.model.sdk_keys import SHARDS_HEADER
from penstock.model.wire.jobs import Problem

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1


class MethodNotAllowed(Refused):
    """The path exists, but not with this method; answered as 405."""

    def __init__(self, method: str, path: str, allowed: Iterable[str]) -> None:
        self.allow = ", ".join(sorted(allowed))
        super().__init__(f"{path} does not take {method}; it takes {self.allow}")


class HeadTooLarge(TooLarge):
    """The head of a request is too long; answered as 431."""


# The first class that fits decides. CorruptObject is left to 500: the bytes that are wrong are our own;
# where a client sent them, the endpoint says Invalid instead.
STATUSES: tuple[tuple[type[PenstockError], int], ...] = (
    (UnsupportedMediaType, 415),
    (MethodNotAllowed, 405),
    (Unauthorized, 401),
    (Forbidden, 403),
    (Malformed, 400),
    (Invalid, 422),
    (NotFound, 404),
    (Conflict, 409),
    (JournalGone, 410),
    (HeadTooLarge, 431),
    (TooLarge, 413),
    (RequestTimeout, 408),
    (NotServed, 501),
    (Unavailable, 503),
)


def status_of(error: PenstockError) -> int:
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def problem_of(error: PenstockError, instance: str | None = None, status: int | None = None) -> Problem:
    """What the client is told. Of an error's details only `known` names leave the server."""
    status = status or status_of(error)
    known = error.details.get("known", ())
    return Problem(
        type=f"urn:penstock:problem:{error.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=error.message,
        instance=instance,
        known=tuple(map(str, known)) if isinstance(known, Iterable) else (),
    )


def problem_reply(error: Exception, path: str | None = None) -> ApiReply:
    """The answer to any exception; an unexpected one is answered without details."""
    match error:
        case PenstockError():
            return _reply(problem_of(error, path), _headers(error))
        case _:
            return _reply(problem_of(PenstockError("something went wrong inside the server; its log says what"), path))


def _reply(problem: Problem, headers: Headers = ()) -> ApiReply:
    return json_reply(problem.status, problem, headers, content_type=PROBLEM_JSON)


def _headers(error: PenstockError) -> Headers:
    match error:
        case Unavailable():
            return ((b"retry-after", b"%d" % RETRY_AFTER_SECONDS),)
        case Unauthorized() | Forbidden():
            return ((b"www-authenticate", _challenge(error).encode("latin-1")),)
        case ChooseShard():
            return ((SHARDS_HEADER.lower().encode(), error.shards.encode()),)
        case MethodNotAllowed():
            return ((b"allow", error.allow.encode("latin-1")),)
        case _:
            return ()


def _challenge(error: Unauthorized | Forbidden) -> str:
    """What RFC 6750 tells a client: which kind of credentials, and what was wrong with those it sent."""
    match error:
        case Forbidden(details={"scopes": (*scopes,)}):
            return f'Bearer realm="penstock", error="insufficient_scope", scope="{" ".join(map(str, scopes))}"'
        case Unauthorized(details={"shown": True}):
            return 'Bearer realm="penstock", error="invalid_token"'
        case _:
            return 'Bearer realm="penstock"'
