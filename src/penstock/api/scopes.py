"""Which scope an operation asks for where it does not say so itself: by its path, and whether it only reads."""

from collections.abc import Mapping

from penstock.model.keys import KeyScope

Scopes = tuple[KeyScope, ...]

NOBODY_IN_PARTICULAR: Scopes = ()
"""For everyone, without a key: whether the server is there, and how to talk to it."""

_READ = (KeyScope.JOBS_READ,)
_WRITE = (KeyScope.JOBS_WRITE,)
_SCHEDULES = (KeyScope.SCHEDULES,)
_ADMIN = (KeyScope.ADMIN,)

READING: Mapping[str, Scopes] = {
    "jobs": _READ,
    "queues": _READ,
    "types": _READ,
    "workers": _READ,
    "fleets": _READ,
    "metrics": _READ,
    "schedules": _SCHEDULES,
    "healthz": NOBODY_IN_PARTICULAR,
    "readyz": NOBODY_IN_PARTICULAR,
    "openapi.json": NOBODY_IN_PARTICULAR,
}
WRITING: Mapping[str, Scopes] = {
    "jobs": _WRITE,
    "uploads": _WRITE,
    "queues": (KeyScope.QUEUES,),
    "workers": (KeyScope.WORKER,),
    "schedules": _SCHEDULES,
    "schedulers": (KeyScope.SCHEDULER,),
}


def scopes_of(method: str, path: str) -> Scopes:
    """Any one of these is enough. What nobody thought of is for admins."""
    resource = path.removeprefix("/v1").split("/")[1]
    return (READING if method == "GET" else WRITING).get(resource, _ADMIN)
