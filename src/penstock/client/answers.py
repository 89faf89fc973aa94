"""An answer as a value or as an error of the tree: the server's own code and words where it gave them."""

from typing import TypeVar

import msgspec

from penstock.client.calls import Call, Reply
from penstock.model.errors import BY_CODE, NotFound, PenstockError, Refused, TooLarge, Unavailable
from penstock.model.wire import Problem

T = TypeVar("T")

TEMPORARY = frozenset({429, 502, 503, 504})
_EXCERPT = 200


def read(call: Call[T], reply: Reply) -> T:
    """What the call asked for; raises what the server refused it with."""
    if not reply.good:
        raise problem_of(call, reply)
    try:
        return call.decode(reply.body)
    except msgspec.MsgspecError as error:
        raise PenstockError(
            f"{call.method} {call.path}: the answer is not Penstock's ({error}); is the URL right, and is the server's "
            f"version this client's?"
        ) from error


def problem_of(call: Call[T], reply: Reply) -> PenstockError:
    """The error a bad answer stands for. `details["retry_after"]` holds the seconds of a Retry-After header."""
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except msgspec.MsgspecError:
        error = _unexplained(call, reply)
    else:
        error = error_of(problem)
    after = reply.headers.get("retry-after", "")
    if after.isdecimal():
        error.details["retry_after"] = int(after)
    return error


def error_of(problem: Problem) -> PenstockError:
    """The error class of the problem's code, with the server's detail as its message."""
    kind = BY_CODE.get(problem.code) or _kind_of(problem.status)
    return kind(problem.detail or problem.title, status=problem.status, known=problem.known)


def _unexplained(call: Call[T], reply: Reply) -> PenstockError:
    """Something between us and the server answered: a proxy, a load balancer, or another program on that port."""
    excerpt = reply.body[:_EXCERPT].decode(errors="replace").strip()
    words = f"{call.method} {call.path} was answered {reply.status}" + (f": {excerpt}" if excerpt else "")
    return _kind_of(reply.status)(words, status=reply.status)


def _kind_of(status: int) -> type[PenstockError]:
    if status in TEMPORARY:
        return Unavailable
    if status >= 500:
        return PenstockError
    return {404: NotFound, 413: TooLarge}.get(status, Refused)
