"""The id of the request that a task answers: the client's or a new one, sent back and written in every log line."""

import os
import re
from collections.abc import Iterable
from contextvars import ContextVar

HEADER = b"x-request-id"
ID_MAX = 128

_SANE = re.compile(rb"[!-~]{1,%d}" % ID_MAX).fullmatch
"""Visible ASCII without spaces: nothing that could begin another line, or another field."""

_current: ContextVar[bytes] = ContextVar("request_id", default=b"")


def name_request(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Set the request id of this task: the client's own if it is well-formed, else a new one."""
    for name, value in headers:
        if name == HEADER and _SANE(value):
            break
    else:
        # Not from a seed: copies of a process that is restored from a snapshot would all name their requests alike.
        value = os.urandom(8).hex().encode()
    _current.set(value)
    return value


def current_request() -> str:
    """The id of the request that this task answers, or was started by; empty where there is none."""
    return _current.get().decode("ascii")
