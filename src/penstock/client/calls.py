"""The calls of the clients as values: one function per endpoint, each returning a `Call` for any transport."""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from penstock.client.sinks import BytesSink, FileSink, Sink
from penstock.model.job import JobFilter
from penstock.model.sdk_keys import REPEATED_HEADER
from penstock.model.wire.history import HistoryReport
from penstock.model.wire.jobs import (
    BatchResponse,
    DirectUpload,
    FileItem,
    Health,
    JobItem,
    JobPage,
    LogPage,
    QueueItem,
    QueueList,
    Upload,
    UploadRequest,
    WorkerList,
)
from penstock.model.workers import DrainRequest, Worker

T = TypeVar("T")

JSON = "application/json"
BYTES = "application/octet-stream"

ZERO = timedelta()


class Reply(msgspec.Struct, frozen=True):
    """What came back. `body` is empty when the call's sink has taken it."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One request and how to read its answer.

    `repeatable`: sending it twice has the same effect as once, so it may be sent again if in doubt. `wait`
    is how long the server may delay its answer on purpose; `patience` is about how long the caller waits, None for the
    deadlines of the transport. The body of a good answer goes into a fresh `sink`; `decode` gets what the sink kept. A
    call `elsewhere` goes to an object store: its path is a whole URL, and it carries no API key of Penstock.
    """

    method: str
    path: str
    decode: Callable[[bytes], T]
    query: str = ""
    body: bytes | Path | None = None
    content_type: str = JSON
    repeatable: bool = True
    wait: timedelta = ZERO
    sink: Callable[[], Sink] = BytesSink
    headers: Mapping[str, str] = {}
    elsewhere: bool = False
    patience: timedelta | None = None

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path


class StreamBlock(msgspec.Struct, frozen=True):
    """One block of a stream: `id` is the last id that was set, `data` is empty where it only sets the id."""

    event: str
    data: str
    id: str


class Transport(Protocol):
    """Carries calls to a server. `send` and `stream` raise ServerUnavailable when there is no answer."""

    def send(self, call: Call[Any]) -> Reply: ...

    def stream(self, call: Call[Any]) -> Generator[StreamBlock, None, None]:
        """The blocks of a stream as they come. What the server refuses is raised."""
        ...

    def close(self) -> None: ...


class AsyncTransport(Protocol):
    """Carries calls to a server without blocking. As `Transport` otherwise."""

    async def send(self, call: Call[Any]) -> Reply: ...

    def stream(self, call: Call[Any]) -> AsyncGenerator[StreamBlock, None]: ...

    async def close(self) -> None: ...


def submit(body: Mapping[str, object]) -> Call[JobItem]:
    """Repeatable under an idempotency key: one in the body, or one given with `under`."""
    return Call("POST", "/v1/jobs", _JOB, body=msgspec.json.encode(body))


def submit_batch(bodies: Sequence[msgspec.Raw]) -> Call[BatchResponse]:
    """Repeatable under a key given with `under`, which stands for every job that has none of its own."""
    return Call("POST", "/v1/jobs/batch", _BATCH, body=msgspec.json.encode({"jobs": bodies}))


def under(key: str, call: Call[T], *, repeated: bool) -> Call[T]:
    """The same under an idempotency key; `repeated` if it may have been carried out before."""
    told = {"Idempotency-Key": key} | ({REPEATED_HEADER: "true"} if repeated else {})
    return replace(call, headers={**call.headers, **told})


def get(job: str, wait: timedelta = ZERO) -> Call[JobItem]:
    return Call("GET", _job_path(job), _JOB, query=query_of(wait=wait.total_seconds() or None), wait=wait)


def page(wanted: JobFilter, cursor: str | None, limit: int | None) -> Call[JobPage]:
    query = query_of(**msgspec.structs.asdict(wanted), cursor=cursor, limit=limit)
    return Call("GET", "/v1/jobs", msgspec.json.Decoder(JobPage).decode, query=query)


def cancel(job: str, *, force: bool) -> Call[JobItem]:
    return Call("POST", _job_path(job, "cancel"), _JOB, query=query_of(force="true" if force else None))


def retry(job: str) -> Call[JobItem]:
    """Not repeatable: each one makes a new job."""
    return Call("POST", _job_path(job, "retry"), _JOB, repeatable=False)


def logs(job: str, after: int) -> Call[LogPage]:
    return Call("GET", _job_path(job, "logs"), msgspec.json.Decoder(LogPage).decode, query=query_of(after=after))


def upload(content: bytes | Path, content_type: str, digest: str) -> Call[Upload]:
    """Repeatable: a second copy that no job links to is swept away. The server compares the digest."""
    decode = msgspec.json.Decoder(Upload).decode
    headers = {"Digest-SHA256": digest}
    return Call("POST", "/v1/uploads", decode, body=content, content_type=content_type, headers=headers)


def announce(size: int, digest: str, content_type: str) -> Call[DirectUpload]:
    """Repeatable: what was announced and never came is swept away."""
    request = UploadRequest(digest, size, content_type)
    decode = msgspec.json.Decoder(DirectUpload).decode
    return Call("POST", "/v1/uploads/direct", decode, body=msgspec.json.encode(request))


def send_to(offer: DirectUpload, content: bytes | Path, size: int, content_type: str) -> Call[bytes]:
    """Upload a file to the URL of an offer. Object stores require a Content-Length."""
    headers = {**(offer.headers or {}), "Content-Length": str(size)}
    return Call(
        offer.method or "PUT",
        offer.url or "",
        bytes,
        body=content,
        content_type=content_type,
        headers=headers,
        elsewhere=True,
    )


def output(job: str, file: FileItem) -> Call[bytes]:
    """An output's bytes; CorruptObject if they do not match its digest."""
    return Call("GET", _job_path(job, "outputs", file.name), bytes, sink=lambda: BytesSink(file))


def download(job: str, file: FileItem, path: Path) -> Call[bytes]:
    """An output into `path`, whole or not at all; CorruptObject if it does not match its digest."""
    return Call("GET", _job_path(job, "outputs", file.name), bytes, sink=lambda: FileSink(file, path))


def queues() -> Call[tuple[QueueItem, ...]]:
    return Call("GET", "/v1/queues", lambda raw: msgspec.json.decode(raw, type=QueueList).queues)


def history(
    since: datetime | None, until: datetime | None, step: float | None, queue: str | None, type_name: str | None
) -> Call[HistoryReport]:
    span = {"from": since and since.isoformat(), "to": until and until.isoformat(), "step": step}
    query = query_of(**span, queue=queue, type=type_name)
    return Call("GET", "/v1/history", msgspec.json.Decoder(HistoryReport).decode, query=query)


def pause(queue: str) -> Call[QueueItem]:
    return Call("POST", path_of("queues", queue, "pause"), msgspec.json.Decoder(QueueItem).decode)


def resume(queue: str) -> Call[QueueItem]:
    return Call("POST", path_of("queues", queue, "resume"), msgspec.json.Decoder(QueueItem).decode)


def drain_worker(name: str, patience_seconds: float | None) -> Call[Worker]:
    body = msgspec.json.encode(DrainRequest(patience_seconds))
    return Call("POST", path_of("workers", name, "drain"), msgspec.json.Decoder(Worker).decode, body=body)


def workers() -> Call[tuple[Worker, ...]]:
    return Call("GET", "/v1/workers", lambda raw: msgspec.json.decode(raw, type=WorkerList).workers)


def health() -> Call[Health]:
    return Call("GET", "/healthz", msgspec.json.Decoder(Health).decode)


_JOB = msgspec.json.Decoder(JobItem).decode
_BATCH = msgspec.json.Decoder(BatchResponse).decode


def _job_path(job: str, *parts: str) -> str:
    return path_of("jobs", job, *parts)


def path_of(*parts: str) -> str:
    """A path below `/v1`; each part may hold anything."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def query_of(**values: object) -> str:
    """A query of the values that are not None."""
    return urlencode({name: str(value) for name, value in values.items() if value is not None})
