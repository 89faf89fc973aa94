"""Who a worker is."""

import os
import random
import re
import socket

UNFIT = re.compile(r"[^A-Za-z0-9._:-]+")


def new_worker_id(rng: random.Random, host: str | None = None) -> str:
    """Host, process and four random digits, in letters that are safe in a name."""
    name = UNFIT.sub("-", host or socket.gethostname()).strip("-._:")[:64] or "worker"
    return f"{name}-{os.getpid()}-{rng.getrandbits(16):04x}"


def usable_cores() -> int:
    """The cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
