"""Everything Penstock raises, as one tree. Each class has a stable `code`; the message says what to do.

PenstockError
├── Refused                 asking again the same way gets the same answer
│   ├── Unauthorized        unauthorized         no API key was shown, or none that is good
│   ├── Forbidden           forbidden            the API key is good, but not for this
│   │   ├── ForeignHost     foreign_host         the Host is no name of a server that needs no key
│   │   └── CrossOrigin     cross_origin         a web page of another origin asked a server that needs no key
│   ├── Malformed           malformed            the request is not JSON of the expected shape
│   ├── Invalid             invalid              well-formed, but a value is not acceptable
│   │   ├── UnknownType     unknown_type         no job type of that name is known
│   │   ├── InvalidParams   invalid_params       params do not fit the handler's signature
│   │   ├── RefusedAddress  refused_address      webhooks may not be sent to that address
│   │   ├── UnresolvedHost  unresolved_host      a host name has no address now
│   │   └── InvalidSetting  invalid_setting      a setting cannot be used; names all that are wrong
│   │       └── MissingExtra  missing_extra    the settings need libraries that are not installed
│   ├── NotFound            not_found            no such job, file, queue or page
│   ├── Conflict            conflict             the thing exists, in a state that does not allow this
│   │   ├── KeyConflict     key_conflict         the idempotency key belongs to a job with another body
│   │   ├── ChooseShard     choose_shard         a key of the SDK must name another shard
│   │   ├── EventsNotKept   events_not_kept      the settings say that no journal is kept
│   │   └── LeaseLost       lease_lost           the fence shown is no longer the job's fence
│   ├── JournalGone         gone                 events that are no longer kept were asked for
│   ├── TooLarge            too_large            above a configured limit
│   ├── NotServed           not_served           this kind of server cannot answer that; another kind can
│   ├── CorruptObject       corrupt_object       stored bytes do not match their digest
│   └── WebhookRefused      webhook_refused      a webhook that came in cannot be used
│       ├── BadSignature    bad_signature        it is not signed with a known secret
│       ├── StaleWebhook    stale_webhook        it was signed too long ago, or in the future
│       └── UnreadableWebhook  unreadable_webhook  its body holds no events of jobs
├── Unavailable             may succeed later: retry, with the same idempotency key
│   ├── StoreUnavailable    store_unavailable    the shard cannot be read or written safely now
│   │   └── MapChanged      map_changed          the shard map changed meanwhile: place the job again
│   │   └── StoreBusy       store_busy           no connection to the shard is free; it is well
│   ├── BrokerUnavailable   broker_unavailable   the broker cannot be reached; jobs wait in the store
│   ├── ObjectsUnavailable  objects_unavailable  the object store cannot be reached
│   ├── FleetUnavailable    fleet_unavailable    workers cannot be started, stopped or seen now
│   ├── ServerUnavailable   server_unavailable   no answer from the Penstock server
│   ├── ServerBusy          server_busy          the server has as many connections as it may
│   ├── RequestTimeout      request_timeout      the rest of the request did not come in time
│   ├── Starting            starting             this process is starting and does not know its job types yet
│   └── ShuttingDown        shutting_down        this process is stopping
├── JobEnded                job_ended            waited for a job that did not succeed
└── WaitTimeout             wait_timeout         the job had not ended in time; it goes on
"""

from collections.abc import Iterator
from typing import ClassVar


class PenstockError(Exception):
    """The root. `code` never changes once released; the message may."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class Refused(PenstockError):
    """Asking again the same way gets the same answer."""

    code = "refused"


class Unauthorized(Refused):
    """No API key was shown, or none that is good."""

    code = "unauthorized"


class Forbidden(Refused):
    """The API key is good, but not for this."""

    code = "forbidden"


class ForeignHost(Forbidden):
    """A server that needs no API key was asked under a name that is not its own."""

    code = "foreign_host"


class CrossOrigin(Forbidden):
    """A server that needs no API key was asked by a web page of another origin."""

    code = "cross_origin"


class Malformed(Refused):
    """The request is not JSON of the expected shape."""

    code = "malformed"


class Invalid(Refused):
    """Well-formed, but a value is not acceptable."""

    code = "invalid"


class UnknownType(Invalid):
    """No job type of that name is known."""

    code = "unknown_type"


class InvalidParams(Invalid):
    """Params do not fit the handler's signature."""

    code = "invalid_params"


class RefusedAddress(Invalid):
    """Webhooks may not be sent to that address; the message names the setting that would allow it."""

    code = "refused_address"


class UnresolvedHost(Invalid):
    """A host name has no address now, or none was found in time."""

    code = "unresolved_host"


class InvalidSetting(Invalid):
    """A setting cannot be used; the message names all that are wrong."""

    code = "invalid_setting"


class MissingExtra(InvalidSetting):
    """The settings need libraries that are not installed; `remedy` is the command that installs them."""

    code = "missing_extra"

    def __init__(self, message: str, *, remedy: str = "", **details: object) -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message, **details)
        self.missing = message
        self.remedy = remedy


class NotFound(Refused):
    """No such job, file, queue or page."""

    code = "not_found"


class Conflict(Refused):
    """The thing exists, in a state that does not allow this."""

    code = "conflict"


class KeyConflict(Conflict):
    """The idempotency key belongs to a job with another body."""

    code = "key_conflict"


class ChooseShard(Conflict):
    """The shard that a key of the SDK names takes no new jobs now; nothing was written. Name another one."""

    code = "choose_shard"

    def __init__(self, message: str, *, shards: str = "", **details: object) -> None:
        """`shards`: those that take new jobs, as `sdk_keys` writes them."""
        super().__init__(message, **details)
        self.shards = shards


class EventsNotKept(Conflict):
    """The settings say that no journal of state changes is kept."""

    code = "events_not_kept"


class LeaseLost(Conflict):
    """The fence shown is no longer the job's fence: another attempt owns the job, or it has ended."""

    code = "lease_lost"


class JournalGone(Refused):
    """Events that the journal no longer keeps were asked for."""

    code = "gone"


class TooLarge(Refused):
    """Above a configured limit."""

    code = "too_large"


class NotServed(Refused):
    """This kind of server cannot answer that; the message names the kind that can."""

    code = "not_served"


class CorruptObject(Refused):
    """Stored bytes do not match their digest."""

    code = "corrupt_object"


class WebhookRefused(Refused):
    """A webhook that came in cannot be used; answer it with 400."""

    code = "webhook_refused"


class BadSignature(WebhookRefused):
    """The webhook is not signed with a known secret."""

    code = "bad_signature"


class StaleWebhook(WebhookRefused):
    """The webhook was signed too long ago, or in the future: a repetition, or a clock that is wrong."""

    code = "stale_webhook"


class UnreadableWebhook(WebhookRefused):
    """The webhook is signed as it should be, but its body holds no events of jobs."""

    code = "unreadable_webhook"


class Unavailable(PenstockError):
    """May succeed later: retry, with the same idempotency key."""

    code = "unavailable"

    @property
    def unsent(self) -> bool:
        """Whether it is certain that nothing was asked for: `sent=False` among the details."""
        return self.details.get("sent") is False


class StoreUnavailable(Unavailable):
    """The shard cannot be read or written safely now; nothing was acknowledged."""

    code = "store_unavailable"


class MapChanged(StoreUnavailable):
    """The shard map changed while the job was on its way; nothing was written, and it has another place now."""

    code = "map_changed"


class StoreBusy(StoreUnavailable):
    """No connection to the shard was free in time; it is well, and nothing was done."""

    code = "store_busy"


class BrokerUnavailable(Unavailable):
    """The broker cannot be reached; jobs wait in the store."""

    code = "broker_unavailable"


class ObjectsUnavailable(Unavailable):
    """The object store cannot be reached."""

    code = "objects_unavailable"


class FleetUnavailable(Unavailable):
    """Workers cannot be started, stopped or seen now; those that run go on."""

    code = "fleet_unavailable"


class ServerUnavailable(Unavailable):
    """No answer from the Penstock server."""

    code = "server_unavailable"


class ServerBusy(Unavailable):
    """The server has as many connections as it may."""

    code = "server_busy"


class RequestTimeout(Unavailable):
    """The rest of the request did not come in time; nothing was done."""

    code = "request_timeout"


class Starting(Unavailable):
    """This process is starting and does not know its job types yet."""

    code = "starting"


class ShuttingDown(Unavailable):
    """This process is stopping and takes no more."""

    code = "shutting_down"


class JobEnded(PenstockError):
    """Waited for a job that did not succeed; `details["job"]` is the job item."""

    code = "job_ended"


class WaitTimeout(PenstockError):
    """The job had not ended in time; it goes on. `details["job"]` is the job item."""

    code = "wait_timeout"


def tree(root: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    """Every error class, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


BY_CODE: dict[str, type[PenstockError]] = {error.code: error for error in tree()}
