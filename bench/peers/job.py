"""The job that all systems run: about 100 bytes in, one record out."""

import os
import struct
import time
from typing import TypedDict

_RECORD = struct.Struct("<Qdd")
_LOG = os.open(os.environ["BENCH_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


class Payload(TypedDict):
    """The arguments of the job: its index, when it was enqueued, and ballast."""

    i: int
    t: float
    user: str
    pad: str


def payload(index: int) -> Payload:
    """A job enqueued now; about 100 bytes as JSON."""
    return {"i": index, "t": time.time(), "user": "someone@example.org", "pad": "x" * 30}


def mark(index: int, enqueued_at: float) -> None:
    """The whole body of the job. One write with O_APPEND is atomic, so any number of processes may share the file."""
    os.write(_LOG, _RECORD.pack(index, enqueued_at, time.time()))
