"""Promote, dispatch, lapse: due jobs get a ticket, one at a time, the urgent and the old first."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from penstock.model.ids import shard_of
from penstock.model.job import BacklogKey, Ticket
from penstock.model.lifecycle import Move, State
from penstock.testing.store_contract.stage import MINUTE, SECOND, TICKET, OnStage, StoreStage


class DispatchContract(OnStage):
    async def test_due_jobs_are_promoted_earliest_first(self, stage: StoreStage) -> None:
        late, soon, later = [(await stage.submit(delay=SECOND * delay)).id for delay in (20, 10, 60)]
        stage.clock.advance(SECOND * 30)
        events = await stage.sweeps.promote(10)
        assert stage.lines(event.job for event in events) == stage.lines([soon, late])
        assert {(event.move, event.before, event.after) for event in events} == {
            (Move.DISPATCH, State.SCHEDULED, State.QUEUED)
        }
        assert (await stage.job(later)).state is State.SCHEDULED

    async def test_promote_keeps_to_its_limit(self, stage: StoreStage) -> None:
        jobs = [(await stage.submit(delay=SECOND * delay)).id for delay in range(1, 6)]
        stage.clock.advance(MINUTE)
        first = [event.job for event in await stage.sweeps.promote(2)]
        rest = [event.job for event in await stage.sweeps.promote(9)]
        assert (len(first), len(rest)) == (2, 3)
        assert stage.lines(first + rest) == stage.lines(jobs)
        assert await stage.sweeps.promote(9) == []

    async def test_a_promoted_job_waits_for_a_ticket(self, stage: StoreStage) -> None:
        job = await stage.submit(delay=SECOND, ticketed=True)
        stage.clock.advance(SECOND)
        assert await stage.dispatch({"mail": 9}) == []
        await stage.sweeps.promote(9)
        assert [ticket.job for ticket in await stage.dispatch({"mail": 9})] == [job.id]

    async def test_dispatch_goes_by_priority_and_then_by_age(self, stage: StoreStage) -> None:
        low, first, second, high = [(await stage.submit(priority=priority)).id for priority in (1, 5, 5, 9)]
        tickets = await stage.dispatch({"mail": 3})
        assert len(tickets) == 3
        tickets += await stage.dispatch({"mail": 3})
        assert stage.lines(ticket.job for ticket in tickets) == stage.lines([high, first, second, low])

    async def test_a_ticket_names_its_job(self, stage: StoreStage) -> None:
        job = await stage.submit(type="mail", queue="slow", priority=7)
        assert await stage.dispatch({"slow": 1}) == [Ticket(shard_of(job.id), job.id, "slow", "mail", 7)]

    async def test_what_is_marked_is_posted(self, stage: StoreStage) -> None:
        jobs = {(await stage.submit()).id for _ in range(3)}
        posted = list[Ticket]()

        async def post(tickets: Sequence[Ticket]) -> None:
            posted.extend(tickets)

        marked = await stage.dispatch({"mail": 9}, post)
        assert {ticket.job for ticket in posted} == {ticket.job for ticket in marked} == jobs
        assert await stage.dispatch({"mail": 9}, post) == []
        assert len(posted) == 3

    async def test_each_type_has_its_own_room(self, stage: StoreStage) -> None:
        names = ("scan", "scan", "scan", "mail", "mail")
        await stage.store.submit([stage.new(type=name, queue="a", priority=9) for name in names], TICKET)
        tickets = await stage.sweeps.dispatch({BacklogKey("a", "scan"): 2, BacklogKey("a", "mail"): 9}, TICKET)
        assert sorted(ticket.type for ticket in tickets) == ["mail", "mail", "scan", "scan"]

    async def test_each_queue_has_its_own_room(self, stage: StoreStage) -> None:
        for _ in range(3):
            for queue in ("a", "b", "c"):
                await stage.submit(queue=queue)
        tickets = await stage.dispatch({"a": 2, "b": 5, "c": 0, "none": 4})
        assert sorted(ticket.queue for ticket in tickets) == ["a", "a", "b", "b", "b"]

    async def test_concurrent_dispatchers_share_the_jobs(self, stage: StoreStage) -> None:
        await stage.store.submit([stage.new() for _ in range(30)], TICKET)
        batches = await asyncio.gather(*(stage.dispatch({"mail": 8}) for _ in range(6)))
        jobs = [ticket.job for batch in batches for ticket in batch]
        assert len(jobs) == len(set(jobs)) == 30

    async def test_a_job_that_falls_due_gets_its_ticket_in_one_move_where_the_store_can(
        self, stage: StoreStage
    ) -> None:
        line = BacklogKey("mail", "mail")
        expires_at = stage.clock.now() + SECOND
        jobs = [(await stage.submit(delay=SECOND, priority=priority)).id for priority in (3, 7)]
        (later,) = await stage.store.submit([stage.new(delay=MINUTE)], TICKET)
        await stage.submit(delay=SECOND, expires_at=expires_at)
        stage.clock.advance(SECOND)
        for shard in stage.store.shards():
            fused = shard.capabilities.dispatches_due
            mine = [job for job in reversed(jobs) if shard_of(job) == shard.shard] if fused else []
            assert not mine or line in (await shard.due_summary()).due
            assert [one.job for one in await shard.dispatch({line: 9}, TICKET, due=True)] == mine
            for job in mine:
                found = await stage.job(job)
                assert (found.state, found.version) == (State.QUEUED, 2)
            assert not set(mine) & {event.job for event in await shard.promote(9)}
        assert (await stage.job(later.id)).state is State.SCHEDULED

    async def test_expired_jobs_are_passed_over(self, stage: StoreStage) -> None:
        await stage.submit(expires_at=stage.clock.now() + SECOND, priority=9)
        alive = await stage.submit()
        stage.clock.advance(SECOND)
        assert [ticket.job for ticket in await stage.dispatch({"mail": 1})] == [alive.id]

    async def test_only_tickets_past_their_deadline_lapse(self, stage: StoreStage) -> None:
        await stage.submit()
        await stage.dispatch({"mail": 1})
        stage.clock.advance(SECOND)
        await stage.submit()
        await stage.dispatch({"mail": 1})
        stage.clock.advance(TICKET - SECOND * 2)
        assert await stage.expire_overdue_tickets() == 0
        stage.clock.advance(SECOND)
        assert await stage.expire_overdue_tickets() == 1
        assert len(await stage.dispatch({"mail": 9})) == 1

    async def test_tickets_that_were_not_claimed_in_time_are_told_by_their_ids(self, stage: StoreStage) -> None:
        jobs = [(await stage.submit(ticketed=True)).id for _ in range(5)]
        await stage.submit()
        await stage.run_job(ticketed=True)
        stage.clock.advance(TICKET - SECOND)
        late = await stage.submit(ticketed=True)
        assert await stage.sweeps.overdue_tickets(None, 9) == []
        stage.clock.advance(SECOND)
        assert await stage.sweeps.overdue_tickets(None, 9) == sorted(jobs)
        first = await stage.sweeps.overdue_tickets(None, 2)
        assert first + await stage.sweeps.overdue_tickets(first[-1], 9) == sorted(jobs)
        assert late.id not in jobs

    async def test_only_the_tickets_of_the_jobs_given_lapse_if_they_are_overdue(self, stage: StoreStage) -> None:
        lost, held = [(await stage.submit(ticketed=True)).id for _ in range(2)]
        stage.clock.advance(TICKET)
        fresh = await stage.submit(ticketed=True)
        running = await stage.run_job(ticketed=True)
        assert await stage.sweeps.expire_tickets([lost, fresh.id, running.job, stage.unknown()]) == 1
        assert await stage.sweeps.expire_tickets([]) == 0
        assert [ticket.job for ticket in await stage.dispatch({"mail": 9})] == [lost]
        assert await stage.sweeps.overdue_tickets(None, 9) == [held]

    async def test_a_broker_that_lost_its_memory_lapses_everything(self, stage: StoreStage) -> None:
        running = await stage.run_job()
        await stage.store.submit([stage.new(queue=queue, ticketed=True) for queue in "aab"], TICKET)
        assert await stage.sweeps.expire_tickets(None) == 3
        assert len(await stage.dispatch({"a": 9, "b": 9, "mail": 9})) == 3
        assert (await stage.job(running.job)).state is State.RUNNING

    async def test_a_lapsed_job_keeps_its_place_in_the_line(self, stage: StoreStage) -> None:
        first = await stage.submit(ticketed=True)
        second = await stage.submit()
        await stage.sweeps.expire_tickets(None)
        tickets = await stage.dispatch({"mail": 9})
        assert stage.lines(ticket.job for ticket in tickets) == stage.lines([first.id, second.id])

    async def test_the_outlook_names_lines_that_wait_for_a_ticket(self, stage: StoreStage) -> None:
        empty = await stage.sweeps.due_summary()
        assert (empty.backlog, empty.next_due_at) == (frozenset(), None)
        await stage.submit(queue="a")
        await stage.submit(queue="a", type="scan", ticketed=True)
        await stage.submit(queue="b", ticketed=True)
        await stage.submit(queue="b", type="scan")
        await stage.submit(queue="c", expires_at=stage.clock.now() - SECOND)
        await stage.run_job(queue="d")
        assert await stage.shows_backlog({BacklogKey("a", "mail"), BacklogKey("b", "scan")})
        await stage.dispatch({"a": 1})
        assert await stage.shows_backlog({BacklogKey("b", "scan")})

    async def test_the_outlook_tells_when_the_next_job_falls_due(self, stage: StoreStage) -> None:
        now = stage.clock.now()
        await stage.submit(delay=MINUTE)
        await stage.submit(delay=timedelta(seconds=30))
        await stage.submit()
        assert (await stage.sweeps.due_summary()).next_due_at == now + SECOND * 30
        stage.clock.advance(SECOND * 30)
        await stage.sweeps.promote(9)
        assert (await stage.sweeps.due_summary()).next_due_at == now + MINUTE
