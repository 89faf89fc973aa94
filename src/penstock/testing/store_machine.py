"""A job store beside a model of it: the same moves on both; answers and everything kept compared after each step."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta
from typing import Any, ClassVar, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from penstock.model.clock import to_millis
from penstock.model.ids import JobId, new_job_id, shard_of
from penstock.model.job import BacklogKey, Claim, Count, Job, JobFilter, Lease, NewJob, Settlement, Ticket
from penstock.model.lifecycle import State
from penstock.store.seam import Shard, Share, Store
from penstock.testing.clock import SimulatedClock
from penstock.testing.journal import JournalReader
from penstock.testing.store_model import KEEP, LEASE, TICKET, Model, ModelJob, by_shard
from penstock.testing.sweeps import AllShardSweeps

T = TypeVar("T")
NewStore = Callable[[SimulatedClock], AbstractAsyncContextManager[Store]]

EVERYTHING = 10_000
QUEUES = ["a", "b"]
TYPES = ["mail", "scan"]
LINES = [BacklogKey(queue, type_name) for queue in QUEUES for type_name in TYPES]

spans = st.integers(0, 40).map(lambda seconds: timedelta(seconds=seconds))
sometimes = st.sampled_from([None, None, None, 0, 10, 30]).map(
    lambda seconds: None if seconds is None else timedelta(seconds=seconds)
)
endings = st.sampled_from([State.SUCCEEDED, State.FAILED, State.CANCELLED])
picks = st.lists(st.integers(0, 99), min_size=1, max_size=4)
requests = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "type": st.sampled_from(TYPES),
        "priority": st.integers(3, 6),
        "delay": sometimes,
        "key": st.sampled_from([None, None, "k1", "k2"]),
        "fingerprint": st.sampled_from([b"", b"f"]),
        "ticketed": st.booleans(),
        "expires_in": sometimes,
    }
)

shares = st.builds(
    Share,
    queue=st.sampled_from(QUEUES),
    types=st.lists(st.sampled_from(TYPES), unique=True),
    jobs=st.integers(0, 4),
)


class StoreMachine(RuleBasedStateMachine):
    """Give `new_store` in a subclass; `machine` does."""

    new_store: ClassVar[NewStore]

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._rng = random.Random(3)
        self._clock = SimulatedClock()
        self._opened = AsyncExitStack()
        # Typed as a shard, whose answers are never Unavailable: no shard is down here.
        self._store = cast(Shard, self._run(self._open()))
        self._sweeps = AllShardSweeps(self._store)
        self._reader = JournalReader(self._store)
        self._model = Model(self._clock)
        self._jobs: list[JobId] = [self._new_id()]
        self._leases: list[Lease] = [Lease(self._jobs[0], 1)]

    def teardown(self) -> None:
        self._run(self._opened.aclose())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @initialize(asked=st.lists(requests, min_size=2, max_size=6))
    def begin(self, asked: list[dict[str, Any]]) -> None:
        self.submit(asked)
        self.claim(list(range(len(asked))), "w1")

    @rule(asked=st.lists(requests, min_size=1, max_size=4))
    def submit(self, asked: list[dict[str, Any]]) -> None:
        news = [self._new(**fields) for fields in asked]
        expected = [self._model.submit(new) for new in news]
        answers = self._run(self._store.submit(news, TICKET))
        assert [(one.job.id, one.event is not None, one.conflict) for one in answers] == expected
        self._jobs += [job for job, inserted, _ in expected if inserted]

    @rule(span=spans)
    def advance(self, span: timedelta) -> None:
        self._clock.advance(span)

    @rule(room=st.dictionaries(st.sampled_from(LINES), st.integers(0, 4)))
    def dispatch(self, room: dict[BacklogKey, int]) -> None:
        if self._store.capabilities.one_order:
            expected = self._model.dispatch(room)
            assert [ticket.job for ticket in self._run(self._sweeps.dispatch(room, TICKET))] == expected
        else:
            self._model.follow_dispatch(room, [one.job for one in self._run(self._sweeps.dispatch(room, TICKET))])

    @rule(chosen=picks, worker=st.sampled_from(["w1", "w2"]))
    def claim(self, chosen: list[int], worker: str) -> None:
        ready = [job.id for job in self._model.jobs.values() if job.waits(self._clock.now())]
        jobs = [_pick(ready, self._jobs, number) for number in chosen]
        expected = self._model.claim(jobs, worker)
        tickets = [Ticket(shard_of(job), job, "a", "mail") for job in jobs]
        self._claimed(self._run(self._store.claim(tickets, worker, LEASE)), expected)

    @rule(asked=st.lists(shares, unique_by=lambda share: share.queue), worker=st.sampled_from(["w1", "w2"]))
    def claim_next(self, asked: list[Share], worker: str) -> None:
        claims = self._run(self._sweeps.claim_next(asked, worker, LEASE))
        chosen = [one.job for one in claims]
        self._model.check_next(asked, chosen, one_order=self._store.capabilities.one_order)
        self._claimed(claims, self._model.claim(chosen, worker))

    @rule(
        move=st.sampled_from(["renew", "settle", "retry", "release", "release later"]),
        chosen=picks,
        ended=endings,
        flag=st.booleans(),
    )
    def under_a_lease(self, move: str, chosen: list[int], ended: State, flag: bool) -> None:
        """What a worker does with the leases it has, or had."""
        leases = self._some_leases(chosen)
        match move:
            case "renew":
                self._renew([replace(lease, begun=flag) for lease in leases])
            case "settle":
                self._settle(leases, ended, None, lost=flag)
            case "retry":
                self._settle(leases, State.SCHEDULED, timedelta(seconds=chosen[0] % 20), lost=flag)
            case "release":
                self._release(leases, None, suspects=flag)
            case _:
                self._release(leases, timedelta(seconds=chosen[0] % 20), suspects=flag)

    @rule(chosen=picks, force=st.booleans())
    def cancel(self, chosen: list[int], force: bool) -> None:
        alive = [job.id for job in self._model.jobs.values() if not job.state.terminal]
        jobs = [_pick(alive, self._jobs, number) for number in chosen]
        expected = [self._model.cancel(job, force=force) for job in jobs]
        answers = self._run(self._store.cancel(jobs, force=force))
        assert [one.event is not None for one in answers] == expected

    @rule(sweep=st.sampled_from(["promote", "lapse", "lapse everything", "reclaim", "expire", "prune"]))
    def sweep(self, sweep: str) -> None:
        """What the loops do. One rule, as Hypothesis leaves out whole rules at random: leases need them all."""
        match sweep:
            case "promote":
                self._promote()
            case "lapse" | "lapse everything":
                self._lapse(everything=sweep != "lapse")
            case "reclaim":
                self._reclaim()
            case "expire":
                self._expire()
            case _:
                self._prune()

    @invariant()
    def jobs_agree(self) -> None:
        if self._store.capabilities.rows_expire:
            self._model.prune()
        page = self._run(self._store.page(JobFilter(), None, EVERYTHING))
        newest_first = list(reversed(self._model.jobs.values()))
        if self._store.capabilities.one_order:
            assert [job.id for job in page.jobs] == [job.id for job in newest_first]
        assert by_shard(job.id for job in page.jobs) == by_shard(job.id for job in newest_first)
        assert {job.id: _kept(job) for job in page.jobs} == {job.id: _modelled(job) for job in newest_first}
        self._counts_agree(page.jobs)
        self._run(self._reader.read())
        self._reader.check(page.jobs)

    def _counts_agree(self, jobs: Sequence[Job]) -> None:
        """Where rows expire, counts of ended jobs may last for a day after them; inexact ones are the contract's."""
        able = self._store.capabilities
        if not able.exact_counts:
            return
        by_hand = Counter((job.queue, job.type, job.state) for job in jobs)
        counted = {one for one in self._run(self._store.counts()) if one.jobs}
        expected = {Count(*key, number) for key, number in by_hand.items()}
        if able.rows_expire:
            counted, expected = ({one for one in some if not one.state.terminal} for some in (counted, expected))
        assert counted == expected

    @invariant()
    def the_outlook_agrees(self) -> None:
        now, jobs = self._clock.now(), self._model.jobs.values()
        outlook = self._run(self._sweeps.due_summary())
        assert outlook.backlog == {job.line for job in jobs if job.waits(now) and job.ticket_until is None}
        due = [job.due_at for job in jobs if job.state is State.SCHEDULED]
        assert outlook.next_due_at == min(due, default=None)

    def _claimed(self, claims: list[Claim], expected: list[tuple[JobId, int, int, bool, bool]]) -> None:
        answers = [(one.job, one.fence, one.attempt, one.alone, one.alone_in_worker) for one in claims]
        assert answers == expected
        self._leases += [Lease(one.job, one.fence) for one in claims]

    def _renew(self, leases: list[Lease]) -> None:
        expected = [self._model.renew(lease) for lease in leases]
        answers = self._run(self._store.renew("w1", leases, LEASE))
        assert [(one.loss, one.cancel) for one in answers] == expected

    def _settle(self, leases: list[Lease], state: State, wait: timedelta | None, *, lost: bool) -> None:
        expected = [self._model.settle(lease, state, wait, lost=lost) for lease in leases]
        batch = [Settlement(job=one.job, fence=one.fence, state=state, retry_in=wait, loss=lost) for one in leases]
        assert [one.loss for one in self._run(self._store.settle(batch))] == expected

    def _release(self, leases: list[Lease], delay: timedelta | None, *, suspects: bool) -> None:
        expected = [self._model.release(lease, suspects=suspects, delay=delay) for lease in leases]
        answers = self._run(self._store.release(leases, suspects=suspects, delay=delay))
        assert [one.loss for one in answers] == expected

    def _promote(self) -> None:
        expected = self._model.promote()
        assert {event.job for event in self._run(self._sweeps.promote(EVERYTHING))} == expected

    def _lapse(self, *, everything: bool) -> None:
        overdue = self._run(self._sweeps.overdue_tickets(None, EVERYTHING))
        assert overdue == self._model.overdue_tickets()
        jobs = None if everything else overdue
        expected = self._model.expire_tickets(jobs)
        assert self._run(self._sweeps.expire_tickets(jobs)) == expected

    def _reclaim(self) -> None:
        expected = self._model.reclaim()
        assert {event.job for event in self._run(self._sweeps.reclaim(EVERYTHING))} == expected

    def _expire(self) -> None:
        expected = self._model.expire()
        assert {event.job for event in self._run(self._sweeps.expire(EVERYTHING))} == expected

    def _prune(self) -> None:
        expected = 0 if self._store.capabilities.rows_expire else self._model.prune()
        assert self._run(self._sweeps.prune(KEEP, EVERYTHING)).jobs == expected

    async def _open(self) -> Store:
        return await self._opened.enter_async_context(type(self).new_store(self._clock))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def _some_leases(self, chosen: list[int]) -> list[Lease]:
        """Of jobs that run now, under the fences of all their claims."""
        running = {job.id for job in self._model.jobs.values() if job.state is State.RUNNING}
        likely = [lease for lease in self._leases if lease.job in running]
        return [_pick(likely, self._leases, number) for number in chosen]

    def _new_id(self, key: str | None = None) -> JobId:
        return new_job_id(to_millis(self._clock.now()), self._store.shard_for(key), self._rng)

    def _new(self, expires_in: timedelta | None, **fields: Any) -> NewJob:
        expires_at = None if expires_in is None else self._clock.now() + expires_in
        return NewJob(id=self._new_id(fields["key"]), expires_at=expires_at, **fields)


def machine(new_store: NewStore) -> type[StoreMachine]:
    """A state machine over new stores of one backend; run its `TestCase`."""
    return type("BackendMachine", (StoreMachine,), {"new_store": staticmethod(new_store)})


def _pick(likely: list[T], possible: list[T], number: int) -> T:
    """Mostly something that the move can change; sometimes anything that ever was."""
    values = likely if likely and number % 4 < 3 else possible
    return values[number % len(values)]


def _kept(job: Job) -> tuple[object, ...]:
    marked = job.state is State.RUNNING and job.cancel_requested_at is not None
    return (
        job.id, job.state, job.priority, job.due_at, job.expires_at, job.attempt, job.fence, job.losses, job.worker,
        job.completed_at, marked, job.version,
    )  # fmt: skip


def _modelled(job: ModelJob) -> tuple[object, ...]:
    marked = job.state is State.RUNNING and job.marked
    return (
        job.id, job.state, job.priority, job.due_at, job.expires_at, job.attempt, job.fence, job.losses, job.worker,
        job.completed_at, marked, job.version,
    )  # fmt: skip
