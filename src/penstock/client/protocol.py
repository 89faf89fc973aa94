"""Operations of more than one call, written once for both clients.

An exchange is a generator that yields steps (send this call, pause this long) and receives replies or ServerUnavailable
as an exception. It does no I/O itself: `Client` and `AsyncClient` differ only in how they perform a step.
"""

import hashlib
import mimetypes
import random
from collections.abc import Generator, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.client import calls, http
from penstock.client.calls import Call, Reply
from penstock.client.direct import Direct, ShardPlacement
from penstock.client.environment import default_patience
from penstock.client.event_calls import StreamPosition
from penstock.client.options import Content, JobSpec, body_of, check_submit
from penstock.model.clock import Clock
from penstock.model.errors import (
    ChooseShard,
    MapChanged,
    NotFound,
    PenstockError,
    ServerUnavailable,
    TooLarge,
    Unavailable,
    WaitTimeout,
)
from penstock.model.retry import Retry
from penstock.model.wire.jobs import BatchAnswer, FileItem, JobItem, LogPage, Upload

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class Pause(msgspec.Struct, frozen=True):
    """Wait this long before the next step."""

    span: timedelta


Step: TypeAlias = Call[Any] | Pause
Exchange: TypeAlias = Generator[Step, Reply, T]

NOTHING = Reply(0)
"""The reply after a pause."""

DEFAULT_WAIT = timedelta(seconds=30)
BACKOFF = Retry(delay_seconds=0.2, cap_seconds=5.0)
LONGEST_POLL = timedelta(seconds=20)
SHORTEST_POLL = timedelta(milliseconds=200)
TEMPORARY_REDIRECT = 307
CHOSEN_AT_ONCE = 3
"""How many times another shard is chosen without a pause."""
BATCH_JOBS = 2_000
BATCH_BYTES = 4 << 20


class ClientProtocol:
    """The exchanges of one client. `patience` is how long calls to an unavailable server are repeated.

    None reads it from the environment with each call: an app may be imported before its process belongs to a worker.
    """

    def __init__(self, clock: Clock, rng: random.Random, patience: timedelta | None) -> None:
        self._clock = clock
        self._rng = rng
        self._given_patience = patience
        self._direct = Direct(clock)
        self._places = ShardPlacement(rng)

    def ask(self, call: Call[T], patience: timedelta | None = None) -> Exchange[T]:
        """Send a call; a repeatable one again and again while the server is unavailable, until patience ends."""
        give_up_at = self._now() + (self._patience if patience is None else patience)
        attempt = 0
        while True:
            attempt += 1
            try:
                return http.read(call, (yield call))
            except Unavailable as error:
                pause = self._pause_after(error, attempt)
                if not call.repeatable or self._now() + pause > give_up_at:
                    raise
            yield Pause(pause)

    def follow(self, call: Call[Any]) -> StreamPosition[Any]:
        """The position of a client that begins to read a stream."""
        return StreamPosition(call, self._clock, self._rng, self._patience)

    def submit(self, spec: JobSpec) -> Exchange[JobItem]:
        """Upload the inputs, then add the job. Never adds it twice, however often it is sent."""
        uploads = yield from self._upload_inputs(spec)
        call = replace(calls.submit(body_of(spec, uploads)), patience=self._patience)
        return (yield from self._submit_somewhere(call) if spec.get("key") is None else self.ask(call))

    def _submit_somewhere(self, call: Call[T]) -> Exchange[T]:
        """Send a submit without a user's key under a generated one, which names the shard that it goes to.

        Another key, on another shard, is used only if nothing was done under the last one for certain.
        """
        give_up_at = self._now() + self._patience
        key, repeated, attempt = self._places.new_key(), False, 0
        while True:
            attempt += 1
            try:
                reply = yield calls.under(key, call, repeated=repeated)
                self._places.learn(reply)
                return http.read(call, reply)
            except ChooseShard as refusal:
                key, repeated = self._places.new_key(), False
                if attempt <= CHOSEN_AT_ONCE:
                    continue
                trouble: Unavailable = ServerUnavailable(refusal.message)
            except Unavailable as error:
                repeated = repeated or not (error.unsent or isinstance(error, MapChanged))
                trouble = error
            pause = self._pause_after(trouble, attempt)
            if self._now() + pause > give_up_at:
                raise trouble
            yield Pause(pause)

    def submit_many(self, specs: Iterable[JobSpec | msgspec.Raw]) -> Exchange[list[BatchAnswer]]:
        """Add many jobs; one answer each, in order. On an error `details["answers"]` holds those already given."""
        bodies = yield from self._bodies(specs)
        given: list[BatchAnswer] = []
        try:
            for batch in batches(bodies):
                given += yield from self._submit_batch(batch, len(given))
        except PenstockError as error:
            error.details["answers"] = given
            raise
        return given

    def wait(self, job: str, timeout: timedelta | None) -> Exchange[JobItem]:
        """The job once it has ended, however it ended. WaitTimeout if that takes longer; None waits for ever."""
        asked_at = self._now()
        while True:
            left = None if timeout is None else max(timeout - (self._now() - asked_at), timedelta())
            poll = LONGEST_POLL if left is None else min(left, LONGEST_POLL)
            polled_at = self._now()
            item = yield from self.ask(calls.get(job, poll), left)
            if item.state.terminal:
                return item
            if timeout is not None and self._now() - asked_at >= timeout:
                raise WaitTimeout(still(item, timeout), job=item)
            if self._now() - polled_at < min(poll, SHORTEST_POLL):
                yield Pause(min(poll, SHORTEST_POLL))

    def logs(self, job: str, after: int) -> Exchange[LogPage]:
        """All lines after a position, and the position to continue from."""
        page = LogPage((), after)
        while True:
            more = yield from self.ask(calls.logs(job, page.position))
            page = LogPage(page.lines + more.lines, more.position)
            if not more.lines:
                return page

    def output(self, job: str, name: str) -> Exchange[bytes]:
        """An output's bytes, compared with its digest."""
        file = yield from self._output_named(job, name)
        return (yield from self._fetch(calls.output(job, file), file))

    def download(self, job: str, name: str, path: Path) -> Exchange[Path]:
        """An output as a file, compared with its digest; below `path`, under its own name, if that is a folder."""
        file = yield from self._output_named(job, name)
        target = path / Path(file.name).name if path.is_dir() else path
        yield from self._fetch(calls.download(job, file, target), file)
        return target

    def upload(self, name: str, content: Content) -> Exchange[Upload]:
        """Store a file for a later job: directly in the object store if it can be reached, else through the server."""
        body = Path(content) if isinstance(content, str) else content
        digest, content_type = _digest(body), mimetypes.guess_type(name)[0] or calls.BYTES
        sent = yield from self._upload_past(body, digest, content_type)
        return sent if sent is not None else (yield from self.ask(calls.upload(body, content_type, digest)))

    def _upload_past(self, body: bytes | Path, digest: str, content_type: str) -> Exchange[Upload | None]:
        """Upload to the object store directly; None if the file is too small or that failed."""
        size = body.stat().st_size if isinstance(body, Path) else len(body)
        if not self._direct.worth(size):
            return None
        offer = yield from self.ask(calls.announce(size, digest, content_type))
        if offer.id is not None and offer.url is not None:
            sent = yield from self._answer_of(calls.send_to(offer, body, size, content_type))
            if sent is not None and sent.good:
                return Upload(offer.id, size, digest, content_type)
        self._direct.of_no_use()
        return None

    def _fetch(self, call: Call[bytes], file: FileItem) -> Exchange[bytes]:
        """A file's bytes: directly from the object store if it can be reached, else through the server."""
        if self._direct.worth(file.size):
            reply = yield from self._answer_of(replace(call, query=calls.query_of(direct="true")))
            if reply is not None and reply.status == TEMPORARY_REDIRECT:
                there = Call("GET", reply.headers.get("location", ""), bytes, sink=call.sink, elsewhere=True)
                reply = yield from self._answer_of(there)
                if reply is None or not reply.good:
                    self._direct.of_no_use()
            if reply is not None and reply.good:
                return reply.body
        return (yield from self.ask(call))

    def _answer_of(self, call: Call[Any]) -> Exchange[Reply | None]:
        """The reply, good or bad; None without one."""
        try:
            return (yield call)
        except Unavailable:
            return None

    def _output_named(self, job: str, name: str) -> Exchange[FileItem]:
        item = yield from self.ask(calls.get(job))
        for file in item.outputs:
            if file.name == name:
                return file
        known = ", ".join(file.name for file in item.outputs) or f"none yet: it is {item.state}"
        raise NotFound(f"job {job} has no output {name!r}; it has {known}")

    def _upload_inputs(self, spec: JobSpec) -> Exchange[dict[str, str]]:
        ids = {}
        for name, content in spec.get("inputs", {}).items():
            upload = yield from self.upload(name, content)
            ids[name] = upload.id
        return ids

    def _bodies(self, specs: Iterable[JobSpec | msgspec.Raw]) -> Exchange[list[msgspec.Raw]]:
        bodies = []
        for spec in specs:
            if isinstance(spec, msgspec.Raw):
                bodies.append(spec)
                continue
            check_submit(spec)
            uploads = (yield from self._upload_inputs(spec)) if spec.get("inputs") else {}
            bodies.append(msgspec.Raw(_encode(body_of(spec, uploads))))
        return bodies

    def _submit_batch(self, batch: Sequence[msgspec.Raw], offset: int) -> Exchange[list[BatchAnswer]]:
        """Add one batch; in halves if the server's limits are lower than ours. Its answers count from `offset`."""
        try:
            answer = yield from self._submit_somewhere(calls.submit_batch(batch))
        except TooLarge:
            if len(batch) < 2:
                raise
            half = len(batch) // 2
            first = yield from self._submit_batch(batch[:half], offset)
            return first + (yield from self._submit_batch(batch[half:], offset + half))
        return [replace(job, index=offset + job.index) for job in answer.jobs] if offset else list(answer.jobs)

    def _pause_after(self, error: Unavailable, attempt: int) -> timedelta:
        after = error.details.get("retry_after", 0)
        asked = timedelta(seconds=after if isinstance(after, int) else 0)
        return max(asked, BACKOFF.wait_after(attempt, self._rng))

    @property
    def _patience(self) -> timedelta:
        return default_patience() if self._given_patience is None else self._given_patience

    def _now(self) -> timedelta:
        return timedelta(seconds=self._clock.monotonic())


def _digest(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def batches(bodies: Sequence[msgspec.Raw]) -> Iterable[Sequence[msgspec.Raw]]:
    """The bodies in order, in batches of bounded number and size; an oversized body is a batch alone."""
    start, size = 0, 0
    for index, body in enumerate(bodies):
        length = len(body)
        if index > start and (index - start >= BATCH_JOBS or size + length > BATCH_BYTES):
            yield bodies[start:index]
            start, size = index, 0
        size += length
    if bodies:
        yield bodies[start:]


def still(item: JobItem, timeout: timedelta) -> str:
    """The message of WaitTimeout: the job's state, and why if it waits."""
    why = f" ({item.reason})" if item.reason else ""
    return f"job {item.id} ({item.type}) is still {item.state}{why} after {timeout.total_seconds():g} s; it goes on"
