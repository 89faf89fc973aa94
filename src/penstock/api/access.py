"""Access: which scopes an operation needs, which queues a key is limited to, and what it may see of a job.

On a server that needs no API key, requests that a web page could have made are refused: a browser sends
requests to this machine for any page that its user looks at, and by a DNS name that points here it even lets the page
read the answers. Programs are not affected: they name the host that they connect to, and send neither `Origin` nor
`Sec-Fetch-Site`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from msgspec.structs import replace
from starlette.types import Scope

from penstock.api.origins import SAME_ORIGIN, Authority, is_origin_of, parse_host, plain_host
from penstock.api.request import ApiRequest, UnsupportedMediaType
from penstock.config import is_loopback
from penstock.engine.keys import bearer
from penstock.model.errors import CrossOrigin, Forbidden, ForeignHost
from penstock.model.ids import JobId
from penstock.model.job import Job
from penstock.model.keys import ApiKey, KeyScope
from penstock.model.retry import Retry
from penstock.model.wire.jobs import NULL, JobItem, QueueItem
from penstock.model.workers import JobType, Worker
from penstock.store.answers import require

_LONGEST_HOST = 300
_READ = frozenset(
    (
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"authorization",
        b"content-type",
        b"content-length",
        b"transfer-encoding",
        b"digest-sha256",
    )
)
# What the Fetch standard lets a page send with a POST to another origin without asking first.
_FORM_TYPES = (b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain", b"")


class OriginCheck:
    """Checks requests without an API key. `hosts` are names of this server besides those of the loopback interface."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(plain_host(host) for host in hosts)
        self._own_authority = lru_cache(maxsize=256)(self._find_own_authority)

    def check(self, scope: Scope) -> None:
        """Raise ForeignHost, CrossOrigin or UnsupportedMediaType for what a page could have sent.

        A request that shows a key is let through: a page does not know one, and a wrong one is refused where keys are.
        """
        headers = dict(scope["headers"])
        if len(headers) == len(scope["headers"]) and self._is_of_program(scope["method"], headers):
            return
        by_name: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            if name in _READ:
                by_name.setdefault(name, []).append(value)
        if b"authorization" in by_name and bearer(by_name[b"authorization"][0].decode("latin-1")) is not None:
            return
        authority = self._host(by_name.get(b"host", []))
        if b"sec-fetch-site" in by_name and by_name[b"sec-fetch-site"] not in SAME_ORIGIN:
            raise _foreign_page("Sec-Fetch-Site", by_name[b"sec-fetch-site"])
        if b"origin" in by_name and not all([is_origin_of(authority, origin) for origin in by_name[b"origin"]]):
            raise _foreign_page("Origin", by_name[b"origin"])
        if scope["method"] == "POST":
            _refuse_form(by_name)

    def _is_of_program(self, method: str, headers: dict[bytes, bytes]) -> bool:
        """The fast path for the usual request: a name of ours, no header that a browser adds, no body but JSON."""
        host = headers.get(b"host", b"")
        return (
            (method != "POST" or headers.get(b"content-type") == b"application/json")
            and b"origin" not in headers
            and b"sec-fetch-site" not in headers
            and len(host) < _LONGEST_HOST
            and self._own_authority(host) is not None
        )

    def _host(self, hosts: list[bytes]) -> Authority:
        # Longer than a DNS name can be: not worth remembering.
        known = len(hosts) == 1 and len(hosts[0]) < _LONGEST_HOST
        authority = self._own_authority(hosts[0]) if known else None
        if authority is None:
            raise ForeignHost(
                f"Host {_joined(hosts)!r} is not a name of this server, which needs no API key; "
                "use localhost or 127.0.0.1, add the name to server.hosts, or show a key"
            )
        return authority

    def _find_own_authority(self, host: bytes) -> Authority | None:
        authority = parse_host(host.decode("latin-1"))
        if authority is None or not (is_loopback(authority[0]) or authority[0] in self._hosts):
            return None
        return authority


def _foreign_page(header: str, values: list[bytes]) -> CrossOrigin:
    return CrossOrigin(
        f"{header} {_joined(values)!r}: a web page of another origin may not use this server without an API key"
    )


def _refuse_form(by_name: dict[bytes, list[bytes]]) -> None:
    """Refuse a body that a form or a script could have sent here unasked, from a browser too old to say its origin.

    A header of our own, or any other Content-Type, makes a browser ask first, and we never say yes.
    """
    content_type = by_name[b"content-type"][0] if b"content-type" in by_name else b""
    if _is_form(content_type) and b"digest-sha256" not in by_name and (content_type or _has_body(by_name)):
        raise UnsupportedMediaType(
            f"a form can send {content_type.decode('latin-1') or 'a body without a Content-Type'}, so it is refused "
            "without an API key; send application/json (an upload: its own Content-Type, or Digest-SHA256 besides)"
        )


def _is_form(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in _FORM_TYPES


def _has_body(by_name: dict[bytes, list[bytes]]) -> bool:
    return b"transfer-encoding" in by_name or by_name.get(b"content-length", [b"0"]) != [b"0"]


def _joined(values: list[bytes]) -> str:
    return ", ".join(value.decode("latin-1") for value in values)


Scopes = tuple[KeyScope, ...]

NO_SCOPES: Scopes = ()
"""No key is needed: health, and the description of the API."""

ANY_SCOPE: Scopes = tuple(KeyScope)
"""Any key that is good."""

_READ_SCOPES = (KeyScope.JOBS_READ,)
_WRITE = (KeyScope.JOBS_WRITE,)
_SCHEDULES = (KeyScope.SCHEDULES,)
_SUBSCRIPTIONS = (KeyScope.SUBSCRIPTIONS,)
_ADMIN = (KeyScope.ADMIN,)

READING: Mapping[str, Scopes] = {
    "jobs": _READ_SCOPES,
    "events": _READ_SCOPES,
    "queues": _READ_SCOPES,
    "history": _READ_SCOPES,
    "types": _READ_SCOPES,
    "workers": _READ_SCOPES,
    "fleets": _READ_SCOPES,
    "metrics": _READ_SCOPES,
    "live": _READ_SCOPES,
    "shards": _READ_SCOPES,
    "session": ANY_SCOPE,
    "schedules": (KeyScope.JOBS_READ, KeyScope.SCHEDULES),
    "subscriptions": _SUBSCRIPTIONS,
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
    "subscriptions": _SUBSCRIPTIONS,
    "schedulers": (KeyScope.SCHEDULER,),
    "session": ANY_SCOPE,
}


def scopes_of(method: str, path: str) -> Scopes:
    """The scopes of which a key needs any one. An operation that is not listed is for admins."""
    resource = path.removeprefix("/v1").split("/")[1]
    if method == "POST" and path.endswith("/workers/{worker}/drain"):
        # A key of a worker is not to end the others.
        return _ADMIN
    return (READING if method == "GET" else WRITING).get(resource, _ADMIN)


def own_queues(call: ApiRequest, asked: Sequence[str] | None) -> tuple[str, ...] | None:
    """The queues to serve of those asked for (None: all that it may). Forbidden names those that the key is not for."""
    key = call.key
    if key is None or key.queues is None:
        return None if asked is None else tuple(asked)
    if asked is None:
        return key.queues
    _refuse(key, key.foreign(asked))
    return tuple(asked)


def own_worker(call: ApiRequest, worker: Worker) -> Worker:
    """The worker as it is: one with a limited key serves those queues only."""
    return replace(worker, queues=own_queues(call, worker.queues))


def own_types(call: ApiRequest, types: Sequence[JobType]) -> Sequence[JobType]:
    """The types that it may declare. An app may have others, which are left to workers whose keys are for them."""
    key = call.key
    if key is None:
        return types
    mine = [one for one in types if not key.foreign((one.queue,))]
    return mine if KeyScope.ADMIN in key.scopes else [_restrict_fleet(one, key) for one in mine]


def _restrict_fleet(declared: JobType, key: ApiKey) -> JobType:
    """The type without what its fleet would be made of, and without the queues that the key is not for.

    A key that may run jobs may not decide which program a fleet starts, nor whose jobs it runs.
    """
    fleet = declared.fleet
    if fleet is None:
        return declared
    queues = fleet.queues and tuple(queue for queue in fleet.queues if not key.foreign((queue,)))
    return replace(declared, fleet=replace(fleet, image=None, command=None, environment={}, queues=queues or None))


async def refuse_foreign_jobs(call: ApiRequest, jobs: Iterable[JobId], unless: KeyScope | None = None) -> None:
    """Raise Forbidden if the key is limited to other queues than one of the jobs is in, `unless` a scope is enough.

    Costs a read, with a limited key only. A job that is not there is left to the move itself.
    """
    key = call.key
    if key is not None and key.queues is not None and unless not in key.scopes:
        found = require(await call.engine.store.get(list(jobs)))
        if key.foreign(job.queue for job in found if job is not None):
            # Which queue a job is in is for keys that may look at jobs.
            raise Forbidden(f"the API key {key.id} is for jobs of {', '.join(key.queues)} only, not for this one")


def _refuse(key: ApiKey, foreign: Sequence[str]) -> None:
    if foreign:
        raise Forbidden(
            f"the API key {key.id} is for jobs of {', '.join(key.queues or ())} only, not of {', '.join(foreign)}; "
            "name only its queues (--queue), or ask with a key that is for the others too"
        )


_TOLD = frozenset(
    (
        "id",
        "state",
        "cancel_requested",
        "scheduled_at",
        "created_at",
        "started_at",
        "completed_at",
        "expires_at",
        "tick_at",
        "omitted",
    )
)
_OMITTED = tuple(name for name in JobItem.__struct_fields__ if name not in _TOLD)


async def show_job(call: ApiRequest, job: Job, seen_at: datetime | None = None) -> JobItem:
    """The job, as it was at `seen_at`, else as of now; its id, state and times if the key may not look at jobs."""
    return await call.engine.jobs.item(job, seen_at) if call.may(KeyScope.JOBS_READ) else receipt(job)


def show_queue(call: ApiRequest, queue: QueueItem) -> QueueItem:
    """The queue; without its jobs if the key may not look at jobs."""
    return queue if call.may(KeyScope.JOBS_READ) else replace(queue, jobs={}, oldest_seconds=None)


def receipt(job: Job) -> JobItem:
    """A job's id, state and times; every other field is empty, and named in `omitted`."""
    return JobItem(
        id=job.id,
        state=job.state,
        cancel_requested=job.cancel_requested_at is not None,
        scheduled_at=job.due_at,
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        expires_at=job.expires_at,
        tick_at=job.tick_at,
        omitted=_OMITTED,
        type="",
        queue="",
        reason=None,
        priority=0,
        params=NULL,
        result=NULL,
        error=None,
        progress=None,
        attempt=0,
        max_attempts=0,
        fence=0,
        version=0,
        retry_policy=Retry.none(),
        timeout_seconds=None,
        tags=(),
        inputs=(),
        outputs=(),
        worker=None,
        retry_of=None,
    )
