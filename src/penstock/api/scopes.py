"""Which scope an operation asks for where it does not say so itself: by its path, and whether it only reads."""

from collections.abc import Mapping

from penstock.model.keys import KeyScope

Scopes = tuple[KeyScope, ...]

NO_SCOPES: Scopes = ()
"""For everyone, without a key: whether the server is there, and how to talk to it."""

_READ_SCOPES = (KeyScope.JOBS_READ,)
_WRITE = (KeyScope.JOBS_WRITE,)
_SCHEDULES = (KeyScope.SCHEDULES,)
_ADMIN = (KeyScope.ADMIN,)

READING: Mapping[str, Scopes] = {
    "jobs": _READ_SCOPES,
    "queues": _READ_SCOPES,
    "types": _READ_SCOPES,
    "workers": _READ_SCOPES,
    "fleets": _READ_SCOPES,
    "metrics": _READ_SCOPES,
    "schedules": _SCHEDULES,
    "healthz": NO_SCOPES,
    "readyz": NO_SCOPES,
    "openapi.json": NO_SCOPES,
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
