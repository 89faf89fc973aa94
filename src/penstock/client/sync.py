"""The blocking client."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self, TypeVar, Unpack

from penstock.client import calls
from penstock.client.calls import Reply, Transport
from penstock.client.flows import NOTHING, PATIENCE, Flow, Flows, Pause, Step, uploading
from penstock.client.http import HttpTransport, server_url
from penstock.client.submission import Content, Duration, JobSpec, SubmitOptions, span_of, spec_of
from penstock.model.errors import Unavailable
from penstock.model.job import JobFilter
from penstock.model.lifecycle import State
from penstock.model.timing import Clock, SystemClock
from penstock.model.wire import BatchAnswer, Health, JobItem, LogPage, QueueItem, Upload
from penstock.model.workers import JobType, Worker

T = TypeVar("T")


class Client:
    """A Penstock server as seen over HTTP. May be shared by threads; does nothing until the first call.

    `url` is the argument, else PENSTOCK_URL, else http://127.0.0.1:7373. While the server is unavailable, calls that
    may be repeated safely are, for up to `patience`; then ServerUnavailable. Every submit may: it carries an
    idempotency key. What the server refuses is raised as the error of its code (`penstock.model.errors`).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        patience: Duration = PATIENCE,
        transport: Transport | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = transport or HttpTransport(server_url(url))
        self._flows = Flows(clock or SystemClock(), chance or random.Random(), span_of(patience))
        self._sleep = sleep

    def submit(self, type: str, params: object = None, **options: Unpack[SubmitOptions]) -> JobItem:
        """Add a job. Once this returns the job is durable, and it was added once however often the call was sent."""
        return self._run(self._flows.submit(spec_of(type, params, options)))

    def submit_many(self, jobs: Iterable[JobSpec]) -> Sequence[BatchAnswer]:
        """Add many jobs, each accepted (`id`) or refused (`problem`) by itself; one answer each, in order."""
        return self._run(self._flows.submit_many(jobs))

    def get(self, job: str) -> JobItem:
        """The job as it is now; NotFound if there is none of this id."""
        return self._run(self._flows.ask(calls.get(job)))

    def wait(self, job: str, timeout: Duration | None = None) -> JobItem:
        """The job once it has ended, however it ended; WaitTimeout if it has not within `timeout`."""
        return self._run(self._flows.wait(job, None if timeout is None else span_of(timeout)))

    def list(
        self,
        *,
        type: str | None = None,
        state: State | None = None,
        queue: str | None = None,
        tag: str | None = None,
        page_size: int | None = None,
    ) -> Iterator[JobItem]:
        """Jobs, newest first, fetched page by page as they are consumed. Each job is seen once."""
        cursor: str | None = None
        while True:
            call = calls.page(JobFilter(type, state, queue, tag), cursor, page_size)
            page = self._run(self._flows.ask(call))
            yield from page.jobs
            cursor = page.cursor
            if cursor is None:
                return

    def cancel(self, job: str, *, force: bool = False) -> JobItem:
        """Cancel a waiting job; ask a running one to stop, or with `force` end it here and now."""
        return self._run(self._flows.ask(calls.cancel(job, force=force)))

    def retry(self, job: str) -> JobItem:
        """A new job with everything the old, ended one was submitted with."""
        return self._run(self._flows.ask(calls.retry(job)))

    def logs(self, job: str, after: int = 0) -> LogPage:
        """What the job wrote after a position; `position` of the answer is where to go on."""
        return self._run(self._flows.logs(job, after))

    def upload(self, name: str, content: Content) -> Upload:
        """Store a file that a job may link to; unlinked it is swept away after a day."""
        return self._run(self._flows.ask(uploading(name, content)))

    def output(self, job: str, name: str) -> bytes:
        """An output's bytes, compared with its digest."""
        return self._run(self._flows.output(job, name))

    def download(self, job: str, name: str, path: Path | str) -> Path:
        """An output as a file, compared with its digest; where it is. `path` may be a folder."""
        return self._run(self._flows.download(job, name, Path(path)))

    def queues(self) -> tuple[QueueItem, ...]:
        return self._run(self._flows.ask(calls.queues()))

    def pause(self, queue: str) -> QueueItem:
        """Let no more jobs of this queue start; those running go on."""
        return self._run(self._flows.ask(calls.pause(queue)))

    def resume(self, queue: str) -> QueueItem:
        return self._run(self._flows.ask(calls.resume(queue)))

    def types(self) -> tuple[JobType, ...]:
        return self._run(self._flows.ask(calls.types()))

    def workers(self) -> tuple[Worker, ...]:
        return self._run(self._flows.ask(calls.workers()))

    def health(self) -> Health:
        return self._run(self._flows.ask(calls.health()))

    def close(self) -> None:
        """Close the connections. The client may be used again."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                try:
                    reply = self._take(step)
                except Unavailable as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value

    def _take(self, step: Step) -> Reply:
        if not isinstance(step, Pause):
            return self._transport.send(step)
        self._sleep(step.span.total_seconds())
        return NOTHING
