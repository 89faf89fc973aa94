"""An answer as a value or as an error of the tree: the server's own code and words where it gave them.

Between a client and its server there may be proxies, which answer for it when they cannot or will not pass a call on.
Only `application/problem+json` with a code is the server's own word: a proxy's 404 says nothing about a job.
"""

from typing import TypeVar

import msgspec

from penstock.client.calls import Call, Reply
from penstock.model.errors import BY_CODE, PenstockError, Refused, ServerUnavailable, TooLarge, Unavailable
from penstock.model.wire import Problem

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
