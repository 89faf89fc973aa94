"""The client for asyncio. Written by `tools/twin.py` from `client.py`: change that and run the tool."""

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar, Unpack

from msgspec import Raw

from penstock.client import admin_calls, calls, event_calls, fleet_calls, schedule_calls
from penstock.client.admin_calls import StateName, key_request, rotate_request
from penstock.client.aio_subscriptions import AsyncClientSubscriptions
from penstock.client.calls import AsyncTransport, Reply
from penstock.client.environment import server_url
from penstock.client.event_calls import EventOptions, JobUpdate, StreamPosition, Update
from penstock.client.fleet_calls import FleetChanges, WorkerCount
from penstock.client.http import AsyncHttpTransport
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


class AsyncClient:
    """`Client` for asyncio: the same calls with the same guarantees, awaited. May be shared by tasks.

    Each event loop gets connections of its own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        patience: Duration | None = None,
        transport: AsyncTransport | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport or AsyncHttpTransport(server_url(url), key=key)
        # Of its own, so that nothing meant for Penstock alone reaches an object store.
        self._object_transport = AsyncHttpTransport("")
        self._clock = clock or SystemClock()
        self._protocol = ClientProtocol(
            self._clock, rng or random.Random(), None if patience is None else span_of(patience)
        )
        self.subscriptions = AsyncClientSubscriptions(self._run, self._protocol)

    async def submit(self, type: str, params: object = None, **options: Unpack[SubmitOptions]) -> JobItem:
        """Add a job. Once this returns the job is durable, and it was added once however often the call was sent."""
        return await self._run(self._protocol.submit(spec_of(type, params, options)))

    async def submit_many(self, jobs: Iterable[JobSpec | Raw]) -> Sequence[BatchAnswer]:
        """Add many jobs, each accepted (`id`) or refused (`problem`) by itself; one answer each, in order.

        A job is a spec, or the JSON of its request, ready to be sent.
        """
        return await self._run(self._protocol.submit_many(jobs))

    async def get(self, job: str) -> JobItem:
        """The job as it is now; NotFound if there is none of this id."""
        return await self._run(self._protocol.ask(calls.get(job)))

    async def wait(self, job: str, timeout: Duration | None = DEFAULT_WAIT) -> JobItem:
        """The job once it has ended, however it ended; WaitTimeout if it has not in time. None waits for ever."""
        return await self._run(self._protocol.wait(job, None if timeout is None else span_of(timeout)))

    async def list(
        self,
        *,
        type: str | None = None,
        state: State | None = None,
        queue: str | None = None,
        tag: str | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[JobItem]:
        """Jobs, newest first, fetched page by page as they are consumed. Each job is seen once."""
        cursor: str | None = None
        while True:
            call = calls.page(JobFilter(type, state, queue, tag), cursor, page_size)
            page = await self._run(self._protocol.ask(call))
            for item in page.jobs:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    async def cancel(self, job: str, *, force: bool = False) -> JobItem:
        """Cancel a waiting job; ask a running one to stop, or with `force` end it here and now."""
        return await self._run(self._protocol.ask(calls.cancel(job, force=force)))

    async def retry(self, job: str) -> JobItem:
        """A new job with everything the old, ended one was submitted with."""
        return await self._run(self._protocol.ask(calls.retry(job)))

    async def logs(self, job: str, after: int = 0) -> LogPage:
        """What the job wrote after a position; `position` of the answer is where to go on."""
        return await self._run(self._protocol.logs(job, after))

    async def events(self, *, follow: bool = True, **options: Unpack[EventOptions]) -> AsyncIterator[EventItem]:
        """Changes of jobs' states, in order for each job, as they happen: from now or `since` on. Never ends by itself.

        After a lost connection it goes on where it was, without gap or double. JournalGone if that is no longer kept.
        With `follow` False it ends with the last that is there, and begins with the oldest that is kept.
        """
        if follow:
            async for item in self._follow(self._protocol.follow(event_calls.events(options))):
                yield item
            return
        cursor, more = None, True
        while more:
            page = await self._run(self._protocol.ask(event_calls.events(options, cursor)))
            for item in page.events:
                yield item
            cursor, more = page.cursor, page.more

    async def stream(self, job: str) -> AsyncIterator[JobUpdate]:
        """Everything about a job as it happens: changes of its state, progress and log lines. Ends with the job."""
        async for item in self._follow(self._protocol.follow(event_calls.job_events(job))):
            yield item

    async def upload(self, name: str, content: Content) -> Upload:
        """Store a file that a job may link to; unlinked it is swept away after a day."""
        return await self._run(self._protocol.upload(name, content))

    async def output(self, job: str, name: str) -> bytes:
        """An output's bytes, compared with its digest."""
        return await self._run(self._protocol.output(job, name))

    async def download(self, job: str, name: str, path: Path | str) -> Path:
        """An output as a file, compared with its digest; where it is. `path` may be a folder."""
        return await self._run(self._protocol.download(job, name, Path(path)))

    async def queues(self) -> tuple[QueueItem, ...]:
        return await self._run(self._protocol.ask(calls.queues()))

    async def history(
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
        return await self._run(self._protocol.ask(asked))

    async def pause(self, queue: str) -> QueueItem:
        """Let no more jobs of this queue start; those running go on."""
        return await self._run(self._protocol.ask(calls.pause(queue)))

    async def resume(self, queue: str) -> QueueItem:
        return await self._run(self._protocol.ask(calls.resume(queue)))

    async def schedule(
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
        return await self._run(self._protocol.ask(schedule_calls.put(body)))

    async def schedules(self, *, page_size: int | None = None) -> AsyncIterator[ScheduleItem]:
        """Schedules by name, fetched page by page as they are consumed."""
        cursor: str | None = None
        while True:
            page = await self._run(self._protocol.ask(schedule_calls.page(cursor, page_size)))
            for item in page.schedules:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    async def get_schedule(self, name: str) -> ScheduleItem:
        """The schedule as it is now; NotFound if there is none of this name."""
        return await self._run(self._protocol.ask(schedule_calls.get(name)))

    async def update_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleItem:
        """Change what is named, leave the rest. Naming `interval` ends a cron, and the other way round."""
        return await self._run(self._protocol.ask(schedule_calls.change(name, changes_body(changes))))

    async def pause_schedule(self, name: str) -> ScheduleItem:
        """Let no more ticks of it come; those that pass meanwhile are missed."""
        return await self._run(self._protocol.ask(schedule_calls.pause(name)))

    async def resume_schedule(self, name: str) -> ScheduleItem:
        return await self._run(self._protocol.ask(schedule_calls.resume(name)))

    async def delete_schedule(self, name: str) -> None:
        """Remove a schedule and the history of its ticks; its jobs stay."""
        await self._run(self._protocol.ask(schedule_calls.delete(name)))

    async def trigger(self, schedule: str) -> JobItem:
        """A job of the schedule, now, besides its ticks."""
        return await self._run(self._protocol.ask(schedule_calls.trigger(schedule)))

    async def backfill(self, schedule: str, from_at: datetime, to_at: datetime) -> tuple[TickItem, ...]:
        """Jobs for the ticks between two instants, both included, that have none yet. Repeating it adds nothing."""
        return await self._run(self._protocol.ask(schedule_calls.backfill(schedule, from_at, to_at)))

    async def preview(self, schedule: str, count: int = 10) -> tuple[datetime, ...]:
        """The next ticks of a schedule."""
        return await self._run(self._protocol.ask(schedule_calls.preview(schedule, count)))

    async def preview_of(self, count: int = 10, **when: Unpack[WhenOptions]) -> tuple[datetime, ...]:
        """The next ticks a schedule would have; nothing is stored."""
        return await self._run(self._protocol.ask(schedule_calls.preview_of(preview_body(when, count))))

    async def ticks(self, schedule: str, *, page_size: int | None = None) -> AsyncIterator[TickItem]:
        """What became of each tick, newest first, fetched page by page as they are consumed."""
        cursor: str | None = None
        while True:
            page = await self._run(self._protocol.ask(schedule_calls.ticks(schedule, cursor, page_size)))
            for item in page.ticks:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    async def types(self) -> tuple[TypeItem, ...]:
        """The declared job types."""
        return await self._run(self._protocol.ask(admin_calls.types()))

    async def alias_type(self, name: str, run_as: str) -> TypeItem:
        """Let jobs and submits of one type be run as another. This and the next two need an admin key."""
        return await self._run(self._protocol.ask(admin_calls.alias_type(name, run_as)))

    async def remove_type_alias(self, name: str) -> None:
        """Let a type be run by its own handler again."""
        await self._run(self._protocol.ask(admin_calls.remove_type_alias(name)))

    async def retire_type(self, name: str, *, cancel: bool = False) -> RetiredType:
        """Accept no more jobs of a type; `cancel` up to a thousand of those that wait: ask until none is left."""
        return await self._run(self._protocol.ask(admin_calls.retire_type(name, cancel=cancel)))

    async def workers(self) -> tuple[Worker, ...]:
        return await self._run(self._protocol.ask(calls.workers()))

    async def drain_worker(self, name: str, patience: Duration | None = None) -> Worker:
        """Ask a worker to finish its jobs and end; after `patience` it gives the rest back. NotFound if it is gone."""
        return await self._run(self._protocol.ask(calls.drain_worker(name, seconds_of(patience))))

    async def keys(self) -> tuple[KeyItem, ...]:
        """The API keys, without their secrets. This and the next three need an admin key."""
        return await self._run(self._protocol.ask(admin_calls.keys()))

    async def create_key(
        self,
        name: str,
        scopes: Iterable[str],
        *,
        queues: Iterable[str] | None = None,
        lifetime: Duration | None = None,
    ) -> MadeKey:
        """A new API key; `key` of the answer is shown this once. `queues` limit a worker key."""
        return await self._run(self._protocol.ask(admin_calls.create_key(key_request(name, scopes, queues, lifetime))))

    async def rotate_key(
        self, id: str, *, grace: Duration = GRACE_SECONDS, lifetime: Duration | None = None
    ) -> MadeKey:
        """A new API key with the terms of an old one, which expires after the grace."""
        return await self._run(self._protocol.ask(admin_calls.rotate_key(id, rotate_request(grace, lifetime))))

    async def revoke_key(self, id: str) -> tuple[int, ...]:
        """Withdraw an API key for good. The shards that do not know it yet: they are told as soon as they answer."""
        return await self._run(self._protocol.ask(admin_calls.revoke_key(id)))

    async def shards(self) -> tuple[ShardItem, ...]:
        """The shards and how they are. This and the next three need an admin key."""
        return await self._run(self._protocol.ask(admin_calls.shards()))

    async def add_shard(
        self, shard_url: str, *, number: int | None = None, weight: float = 1.0, keyed: bool = False
    ) -> ShardItem:
        """Take a shard into the map. A `keyed` one also takes its part of the keys; their jobs are still found."""
        request = ShardRequest(url=shard_url, number=number, weight=weight, keyed=keyed)
        return await self._run(self._protocol.ask(admin_calls.add_shard(request)))

    async def update_shard(
        self, number: int, *, weight: float | None = None, state: StateName | None = None, keyed: bool | None = None
    ) -> ShardItem:
        """Change what is named, leave the rest. `state` is what is wanted: active, draining or down."""
        return await self._run(self._protocol.ask(admin_calls.change_shard(number, weight, state, keyed=keyed)))

    async def remove_shard(self, number: int, *, force: bool = False) -> None:
        """Take a drained shard out of the map; with `force` though ended jobs on it cannot be read any more."""
        await self._run(self._protocol.ask(admin_calls.remove_shard(number, force=force)))

    async def fleets(self) -> tuple[FleetItem, ...]:
        """The fleets and how they are, without their decisions."""
        return await self._run(self._protocol.ask(fleet_calls.fleets()))

    async def get_fleet(self, name: str) -> FleetItem:
        """The fleet with its latest decisions; NotFound if there is none of this name."""
        return await self._run(self._protocol.ask(fleet_calls.get(name)))

    async def update_fleet(self, name: str, **changes: Unpack[FleetChanges]) -> FleetItem:
        """Change what is named, leave the rest. This and the next three need an admin key."""
        return await self._run(self._protocol.ask(fleet_calls.change(name, changes)))

    async def pause_fleet(self, name: str) -> FleetItem:
        """Let none of its workers be started or stopped."""
        return await self._run(self._protocol.ask(fleet_calls.pause(name)))

    async def resume_fleet(self, name: str) -> FleetItem:
        return await self._run(self._protocol.ask(fleet_calls.resume(name)))

    async def scale_fleet(self, name: str, count: WorkerCount) -> FleetItem:
        """Let it have so many workers, whatever its policy says; `auto` leaves that to the policy again."""
        return await self._run(self._protocol.ask(fleet_calls.scale(name, count)))

    async def health(self) -> Health:
        return await self._run(self._protocol.ask(calls.health()))

    async def close(self) -> None:
        """Close the connections. The client may be used again."""
        await self._transport.close()
        await self._object_transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, exchange: Exchange[T]) -> T:
        try:
            step = next(exchange)
            while True:
                try:
                    reply = await self._perform(step)
                except Unavailable as error:
                    step = exchange.throw(error)
                else:
                    step = exchange.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _follow(self, position: StreamPosition[Update]) -> AsyncIterator[Update]:
        while not position.has_ended:
            try:
                async with aclosing(self._transport.stream(position.connect())) as blocks:
                    async for block in blocks:
                        for item in position.read(block):
                            yield item
                        if position.is_cut or position.has_ended:
                            break
            except Unavailable as error:
                position.note_failure(error)
            if not position.has_ended:
                await self._perform(Pause(position.pause()))

    async def _perform(self, step: Step) -> Reply:
        if not isinstance(step, Pause):
            return await (self._object_transport if step.elsewhere else self._transport).send(step)
        await self._clock.sleep(step.span)
        return NOTHING
