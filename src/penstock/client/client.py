"""The blocking client. `tools/twin.py` writes the one for asyncio from this file: run it after a change."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar, Unpack

from msgspec import Raw

from penstock.client import admin_calls, calls, event_calls, fleet_calls, schedule_calls
from penstock.client.admin_calls import StateName, key_request, rotate_request
from penstock.client.calls import Reply, Transport
from penstock.client.environment import server_url
from penstock.client.event_calls import EventOptions, JobUpdate, StreamPosition, Update
from penstock.client.fleet_calls import FleetChanges, WorkerCount
from penstock.client.http import HttpTransport
from penstock.client.options import (
    ConflictName,
    Content,
    Duration,
    JobSpec,
    ScheduleChanges,
    ScheduleOptions,
    SubmitOptions,
    WhenOptions,
    changes_body,
    preview_body,
    schedule_body,
    seconds_of,
    span_of,
    spec_of,
)
from penstock.client.protocol import DEFAULT_WAIT, NOTHING, ClientProtocol, Exchange, Pause, Step
from penstock.client.subscriptions import ClientSubscriptions
from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import Unavailable
from penstock.model.job import JobFilter
from penstock.model.lifecycle import State
from penstock.model.wire.events import EventItem
from penstock.model.wire.fleets import FleetItem
from penstock.model.wire.history import HistoryReport
from penstock.model.wire.jobs import BatchAnswer, Health, JobItem, LogPage, QueueItem, Upload
from penstock.model.wire.keys import GRACE_SECONDS, KeyItem, MadeKey
from penstock.model.wire.schedules import ScheduleItem, TickItem
from penstock.model.wire.shards import ShardItem, ShardRequest
from penstock.model.wire.types import RetiredType, TypeItem
from penstock.model.workers import Worker

T = TypeVar("T")


class Client:
    """A Penstock server as seen over HTTP. May be shared by threads; does nothing until the first call.

    `url` is the argument, else PENSTOCK_URL, else http://127.0.0.1:7373; `key`, an API key, is the argument, else
    PENSTOCK_KEY. In a handler both are those of its worker, unless given. While the server is unavailable, calls that
    may be repeated safely are, for up to `patience`; then ServerUnavailable. Every submit may: it carries an
    idempotency key. Without `patience` it is PENSTOCK_PATIENCE, else 5 seconds, in a handler 30. What the server
    refuses is raised as the error of its code (`penstock.model.errors`).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        patience: Duration | None = None,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport = transport or HttpTransport(server_url(url), key=key)
        # Of its own, so that nothing meant for Penstock alone reaches an object store.
        self._object_transport = HttpTransport("")
        self._protocol = ClientProtocol(
            clock or SystemClock(), rng or random.Random(), None if patience is None else span_of(patience)
        )
        self.subscriptions = ClientSubscriptions(self._run, self._protocol)
        self._sleep = sleep

    def submit(self, type: str, params: object = None, **options: Unpack[SubmitOptions]) -> JobItem:
        """Add a job. Once this returns the job is durable, and it was added once however often the call was sent."""
        return self._run(self._protocol.submit(spec_of(type, params, options)))

    def submit_many(self, jobs: Iterable[JobSpec | Raw]) -> Sequence[BatchAnswer]:
        """Add many jobs, each accepted (`id`) or refused (`problem`) by itself; one answer each, in order.

        A job is a spec, or the JSON of its request, ready to be sent.
        """
        return self._run(self._protocol.submit_many(jobs))

    def get(self, job: str) -> JobItem:
        """The job as it is now; NotFound if there is none of this id."""
        return self._run(self._protocol.ask(calls.get(job)))

    def wait(self, job: str, timeout: Duration | None = DEFAULT_WAIT) -> JobItem:
        """The job once it has ended, however it ended; WaitTimeout if it has not in time. None waits for ever."""
        return self._run(self._protocol.wait(job, None if timeout is None else span_of(timeout)))

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
            page = self._run(self._protocol.ask(call))
            yield from page.jobs
            cursor = page.cursor
            if cursor is None:
                return

    def cancel(self, job: str, *, force: bool = False) -> JobItem:
        """Cancel a waiting job; ask a running one to stop, or with `force` end it here and now."""
        return self._run(self._protocol.ask(calls.cancel(job, force=force)))

    def retry(self, job: str) -> JobItem:
        """A new job with everything the old, ended one was submitted with."""
        return self._run(self._protocol.ask(calls.retry(job)))

    def logs(self, job: str, after: int = 0) -> LogPage:
        """What the job wrote after a position; `position` of the answer is where to go on."""
        return self._run(self._protocol.logs(job, after))

    def events(self, *, follow: bool = True, **options: Unpack[EventOptions]) -> Iterator[EventItem]:
        """Changes of jobs' states, in order for each job, as they happen: from now or `since` on. Never ends by itself.

        After a lost connection it goes on where it was, without gap or double. JournalGone if that is no longer kept.
        With `follow` False it ends with the last that is there, and begins with the oldest that is kept.
        """
        if follow:
            yield from self._follow(self._protocol.follow(event_calls.events(options)))
            return
        cursor, more = None, True
        while more:
            page = self._run(self._protocol.ask(event_calls.events(options, cursor)))
            yield from page.events
            cursor, more = page.cursor, page.more

    def stream(self, job: str) -> Iterator[JobUpdate]:
        """Everything about a job as it happens: changes of its state, progress and log lines. Ends with the job."""
        yield from self._follow(self._protocol.follow(event_calls.job_events(job)))

    def upload(self, name: str, content: Content) -> Upload:
        """Store a file that a job may link to; unlinked it is swept away after a day."""
        return self._run(self._protocol.upload(name, content))

    def output(self, job: str, name: str) -> bytes:
        """An output's bytes, compared with its digest."""
        return self._run(self._protocol.output(job, name))

    def download(self, job: str, name: str, path: Path | str) -> Path:
        """An output as a file, compared with its digest; where it is. `path` may be a folder."""
        return self._run(self._protocol.download(job, name, Path(path)))

    def queues(self) -> tuple[QueueItem, ...]:
        return self._run(self._protocol.ask(calls.queues()))

    def history(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Duration | None = None,
        queue: str | None = None,
        type: str | None = None,
    ) -> HistoryReport:
        """What happened in each step from `since` (an hour before `until`) to `until` (now), at most 400 steps."""
        asked = calls.history(since, until, seconds_of(step), queue, type)
        return self._run(self._protocol.ask(asked))

    def pause(self, queue: str) -> QueueItem:
        """Let no more jobs of this queue start; those running go on."""
        return self._run(self._protocol.ask(calls.pause(queue)))

    def resume(self, queue: str) -> QueueItem:
        return self._run(self._protocol.ask(calls.resume(queue)))

    def schedule(
        self,
        name: str,
        type: str,
        params: object = None,
        *,
        on_conflict: ConflictName = "raise",
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleItem:
        """Make a schedule. Replacing one by the same leaves it untouched: its next tick stays what it was."""
        body = schedule_body(name, type, params, options) | {"on_conflict": on_conflict}
        return self._run(self._protocol.ask(schedule_calls.put(body)))

    def schedules(self, *, page_size: int | None = None) -> Iterator[ScheduleItem]:
        """Schedules by name, fetched page by page as they are consumed."""
        cursor: str | None = None
        while True:
            page = self._run(self._protocol.ask(schedule_calls.page(cursor, page_size)))
            yield from page.schedules
            cursor = page.cursor
            if cursor is None:
                return

    def get_schedule(self, name: str) -> ScheduleItem:
        """The schedule as it is now; NotFound if there is none of this name."""
        return self._run(self._protocol.ask(schedule_calls.get(name)))

    def update_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleItem:
        """Change what is named, leave the rest. Naming `interval` ends a cron, and the other way round."""
        return self._run(self._protocol.ask(schedule_calls.change(name, changes_body(changes))))

    def pause_schedule(self, name: str) -> ScheduleItem:
        """Let no more ticks of it come; those that pass meanwhile are missed."""
        return self._run(self._protocol.ask(schedule_calls.pause(name)))

    def resume_schedule(self, name: str) -> ScheduleItem:
        return self._run(self._protocol.ask(schedule_calls.resume(name)))

    def delete_schedule(self, name: str) -> None:
        """Remove a schedule and the history of its ticks; its jobs stay."""
        self._run(self._protocol.ask(schedule_calls.delete(name)))

    def trigger(self, schedule: str) -> JobItem:
        """A job of the schedule, now, besides its ticks."""
        return self._run(self._protocol.ask(schedule_calls.trigger(schedule)))

    def backfill(self, schedule: str, from_at: datetime, to_at: datetime) -> tuple[TickItem, ...]:
        """Jobs for the ticks between two instants, both included, that have none yet. Repeating it adds nothing."""
        return self._run(self._protocol.ask(schedule_calls.backfill(schedule, from_at, to_at)))

    def preview(self, schedule: str, count: int = 10) -> tuple[datetime, ...]:
        """The next ticks of a schedule."""
        return self._run(self._protocol.ask(schedule_calls.preview(schedule, count)))

    def preview_of(self, count: int = 10, **when: Unpack[WhenOptions]) -> tuple[datetime, ...]:
        """The next ticks a schedule would have; nothing is stored."""
        return self._run(self._protocol.ask(schedule_calls.preview_of(preview_body(when, count))))

    def ticks(self, schedule: str, *, page_size: int | None = None) -> Iterator[TickItem]:
        """What became of each tick, newest first, fetched page by page as they are consumed."""
        cursor: str | None = None
        while True:
            page = self._run(self._protocol.ask(schedule_calls.ticks(schedule, cursor, page_size)))
            yield from page.ticks
            cursor = page.cursor
            if cursor is None:
                return

    def types(self) -> tuple[TypeItem, ...]:
        """The declared job types."""
        return self._run(self._protocol.ask(admin_calls.types()))

    def alias_type(self, name: str, run_as: str) -> TypeItem:
        """Let jobs and submits of one type be run as another. This and the next two need an admin key."""
        return self._run(self._protocol.ask(admin_calls.alias_type(name, run_as)))

    def remove_type_alias(self, name: str) -> None:
        """Let a type be run by its own handler again."""
        self._run(self._protocol.ask(admin_calls.remove_type_alias(name)))

    def retire_type(self, name: str, *, cancel: bool = False) -> RetiredType:
        """Accept no more jobs of a type; `cancel` up to a thousand of those that wait: ask until none is left."""
        return self._run(self._protocol.ask(admin_calls.retire_type(name, cancel=cancel)))

    def workers(self) -> tuple[Worker, ...]:
        return self._run(self._protocol.ask(calls.workers()))

    def drain_worker(self, name: str, patience: Duration | None = None) -> Worker:
        """Ask a worker to finish its jobs and end; after `patience` it gives the rest back. NotFound if it is gone."""
        return self._run(self._protocol.ask(calls.drain_worker(name, seconds_of(patience))))

    def keys(self) -> tuple[KeyItem, ...]:
        """The API keys, without their secrets. This and the next three need an admin key."""
        return self._run(self._protocol.ask(admin_calls.keys()))

    def create_key(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        queues: Iterable[str] | None = None,
        lifetime: Duration | None = None,
    ) -> MadeKey:
        """A new API key; `key` of the answer is shown this once. `queues` limit a worker key."""
        return self._run(self._protocol.ask(admin_calls.create_key(key_request(name, scopes, queues, lifetime))))

    def rotate_key(self, id: str, *, grace: Duration = GRACE_SECONDS, lifetime: Duration | None = None) -> MadeKey:
        """A new API key with the terms of an old one, which expires after the grace."""
        return self._run(self._protocol.ask(admin_calls.rotate_key(id, rotate_request(grace, lifetime))))

    def revoke_key(self, id: str) -> tuple[int, ...]:
        """Withdraw an API key for good. The shards that do not know it yet: they are told as soon as they answer."""
        return self._run(self._protocol.ask(admin_calls.revoke_key(id)))

    def shards(self) -> tuple[ShardItem, ...]:
        """The shards and how they are. This and the next three need an admin key."""
        return self._run(self._protocol.ask(admin_calls.shards()))

    def add_shard(
        self, shard_url: str, *, number: int | None = None, weight: float = 1.0, keyed: bool = False
    ) -> ShardItem:
        """Take a shard into the map. A `keyed` one also takes its part of the keys; their jobs are still found."""
        request = ShardRequest(url=shard_url, number=number, weight=weight, keyed=keyed)
        return self._run(self._protocol.ask(admin_calls.add_shard(request)))

    def update_shard(
        self, number: int, *, weight: float | None = None, state: StateName | None = None, keyed: bool | None = None
    ) -> ShardItem:
        """Change what is named, leave the rest. `state` is what is wanted: active, draining or down."""
        return self._run(self._protocol.ask(admin_calls.change_shard(number, weight, state, keyed=keyed)))

    def remove_shard(self, number: int, *, force: bool = False) -> None:
        """Take a drained shard out of the map; with `force` though ended jobs on it cannot be read any more."""
        self._run(self._protocol.ask(admin_calls.remove_shard(number, force=force)))

    def fleets(self) -> tuple[FleetItem, ...]:
        """The fleets and how they are, without their decisions."""
        return self._run(self._protocol.ask(fleet_calls.fleets()))

    def get_fleet(self, name: str) -> FleetItem:
        """The fleet with its latest decisions; NotFound if there is none of this name."""
        return self._run(self._protocol.ask(fleet_calls.get(name)))

    def update_fleet(self, name: str, **changes: Unpack[FleetChanges]) -> FleetItem:
        """Change what is named, leave the rest. This and the next three need an admin key."""
        return self._run(self._protocol.ask(fleet_calls.change(name, changes)))

    def pause_fleet(self, name: str) -> FleetItem:
        """Let none of its workers be started or stopped."""
        return self._run(self._protocol.ask(fleet_calls.pause(name)))

    def resume_fleet(self, name: str) -> FleetItem:
        return self._run(self._protocol.ask(fleet_calls.resume(name)))

    def scale_fleet(self, name: str, count: WorkerCount) -> FleetItem:
        """Let it have so many workers, whatever its policy says; `auto` leaves that to the policy again."""
        return self._run(self._protocol.ask(fleet_calls.scale(name, count)))

    def health(self) -> Health:
        return self._run(self._protocol.ask(calls.health()))

    def close(self) -> None:
        """Close the connections. The client may be used again."""
        self._transport.close()
        self._object_transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, exchange: Exchange[T]) -> T:
        try:
            step = next(exchange)
            while True:
                try:
                    reply = self._perform(step)
                except Unavailable as error:
                    step = exchange.throw(error)
                else:
                    step = exchange.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value

    def _follow(self, position: StreamPosition[Update]) -> Iterator[Update]:
        while not position.has_ended:
            try:
                with closing(self._transport.stream(position.connect())) as blocks:
                    for block in blocks:
                        yield from position.read(block)
                        if position.is_cut or position.has_ended:
                            break
            except Unavailable as error:
                position.note_failure(error)
            if not position.has_ended:
                self._perform(Pause(position.pause()))

    def _perform(self, step: Step) -> Reply:
        if not isinstance(step, Pause):
            return (self._object_transport if step.elsewhere else self._transport).send(step)
        self._sleep(step.span.total_seconds())
        return NOTHING
