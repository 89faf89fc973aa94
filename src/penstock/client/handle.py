"""A handle of a submitted job, typed by what its handler returns."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from penstock.client.aio import AsyncClient
from penstock.client.client import Client
from penstock.client.event_calls import JobUpdate
from penstock.client.options import Duration
from penstock.client.protocol import DEFAULT_WAIT
from penstock.model.errors import Conflict, Invalid, JobEnded
from penstock.model.ids import JobId
from penstock.model.job import LogLine
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import FileItem, JobItem

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Clients(Protocol):
    """Gives a handle its client at the time of each call: the app."""

    @property
    def client(self) -> Client: ...

    @property
    def async_client(self) -> AsyncClient: ...


class ResultReader(Protocol[R_co]):
    """Turns a result's JSON into what the handler returned."""

    def __call__(self, raw: bytes, /) -> R_co: ...


class JobHandle(Generic[R]):
    """One job: its id, and the job as last fetched. `wait` and `refresh` fetch it again."""

    def __init__(self, job: JobId, clients: Clients, read_result: ResultReader[R], item: JobItem | None = None) -> None:
        self.id = job
        self._clients = clients
        self._read_result = read_result
        self._item = item

    @property
    def item(self) -> JobItem:
        """The job as last fetched."""
        return self._item or self.refresh()

    def refresh(self) -> JobItem:
        """Fetch the job again."""
        self._item = self._clients.client.get(self.id)
        return self._item

    def status(self) -> State:
        """The job's state now."""
        return self.refresh().state

    def wait(self, timeout: Duration | None = DEFAULT_WAIT) -> "JobHandle[R]":
        """This handle, once the job has succeeded.

        Raises JobEnded, with the job's own error, if it ended otherwise, and WaitTimeout if it has not ended in time;
        the job then goes on. None waits for ever.
        """
        self._item = self._clients.client.wait(self.id, timeout)
        return self._succeeded()

    async def wait_async(self, timeout: Duration | None = DEFAULT_WAIT) -> "JobHandle[R]":
        """`wait` without blocking the event loop."""
        self._item = await self._clients.async_client.wait(self.id, timeout)
        return self._succeeded()

    @property
    def result(self) -> R:
        """What the handler returned. Raises JobEnded if it failed, Conflict if it had not ended when last fetched."""
        item = self._succeeded().item
        if "result" in item.omitted:
            item = self.refresh()
        try:
            return self._read_result(item.result)
        except msgspec.ValidationError as error:
            raise Invalid(
                f"the result of job {self.id} ({item.type}) is not what its handler declares: {error}"
            ) from error

    @property
    def outputs(self) -> tuple[FileItem, ...]:
        """The files the job gave; there once it has succeeded."""
        return self.item.outputs

    def output(self, name: str) -> bytes:
        """An output's bytes."""
        return self._clients.client.output(self.id, name)

    def download(self, name: str, path: Path | str) -> Path:
        """An output as a file; where it is. `path` may be a folder."""
        return self._clients.client.download(self.id, name, path)

    def cancel(self, *, force: bool = False) -> JobItem:
        """Cancel the job if it waits; ask it to stop if it runs, or with `force` end it here and now."""
        self._item = self._clients.client.cancel(self.id, force=force)
        return self._item

    def logs(self) -> tuple[LogLine, ...]:
        """What the job has written so far."""
        return self._clients.client.logs(self.id).lines

    def stream(self) -> Iterator[JobUpdate]:
        """Changes of the job's state, its progress and its log lines as they happen, from its first on; to its end."""
        return self._clients.client.stream(self.id)

    def stream_async(self) -> AsyncIterator[JobUpdate]:
        """`stream` without blocking the event loop."""
        return self._clients.async_client.stream(self.id)

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}{f' {self._item.type} {self._item.state}' if self._item else ''}>"

    def _succeeded(self) -> "JobHandle[R]":
        item = self.item
        if not item.state.terminal:
            raise Conflict(f"job {item.id} ({item.type}) was {item.state} when last seen: call wait() for its result")
        if item.state is not State.SUCCEEDED:
            raise JobEnded(how_it_ended(item), job=item)
        return self


def how_it_ended(item: JobItem) -> str:
    """One sentence about a job that ended without success, with its error if it has one."""
    verb = {State.FAILED: "failed", State.EXPIRED: "expired before it started"}.get(item.state, "was cancelled")
    attempt = f" in attempt {item.attempt} of {item.max_attempts}" if item.state is State.FAILED else ""
    error = f"{item.error.error_class or item.error.code}: {item.error.message}" if item.error else item.reason
    return f"job {item.id} ({item.type}) {verb}{attempt}" + (f": {error}" if error else "")
