"""Claim next: workers take what waits straight from the line, without a ticket for each job."""

import asyncio
from datetime import timedelta

from penstock.model.job import FileLink, Lease, ObjectLink
from penstock.model.lifecycle import State
from penstock.testing.store_contract.stage import LEASE, MINUTE, SECOND, TICKET, OnStage, Stage

ALL = ("mail", "scan")
LINK = ObjectLink("objects/1", 9, "sha256:00", "text/plain")


class Claiming(OnStage):
    async def test_what_is_next_is_claimed_as_by_a_ticket(self, stage: Stage) -> None:
        job = await stage.submit(
            queue="slow", params=b'{"a":1}', timeout=SECOND * 2.5, tags=("red",), inputs=(FileLink("a", LINK),)
        )
        await stage.submit(queue="slow", params=None, params_object=LINK, priority=1)
        stage.clock.advance(SECOND)
        claims = await stage.store.claim_next({"slow": 9}, ALL, "w7", LEASE)
        found = {claim.job: claim for claim in claims}
        claim = found.pop(job.id)
        assert (claim.type, claim.queue, bytes(claim.params)) == ("mail", "slow", b'{"a":1}')
        assert (claim.timeout_seconds, claim.tags, claim.inputs, claim.alone) == (2.5, ("red",), job.inputs, False)
        assert (claim.fence, claim.attempt, claim.lease_seconds) == (1, 1, LEASE.total_seconds())
        (large,) = found.values()
        assert (large.params_object, bytes(large.params)) == (LINK, b"null")
        running = await stage.job(job.id)
        assert (running.state, running.fence, running.attempt) == (State.RUNNING, 1, 1)
        assert (running.worker, running.started_at) == ("w7", stage.clock.now())

    async def test_the_line_goes_by_priority_and_then_by_age(self, stage: Stage) -> None:
        low, first, second, high = [(await stage.submit(priority=priority)).id for priority in (1, 5, 5, 9)]
        claims = await stage.store.claim_next({"mail": 3}, ALL, "w1", LEASE)
        assert len(claims) == 3
        claims += await stage.store.claim_next({"mail": 3}, ALL, "w1", LEASE)
        assert stage.lines(claim.job for claim in claims) == stage.lines([high, first, second, low])

    async def test_claims_keep_to_the_room_of_each_queue(self, stage: Stage) -> None:
        for _ in range(3):
            for queue in ("a", "b", "c"):
                await stage.submit(queue=queue)
        claims = await stage.store.claim_next({"a": 2, "b": 5, "c": 0, "none": 4}, ALL, "w1", LEASE)
        assert sorted(claim.queue for claim in claims) == ["a", "a", "b", "b", "b"]
        assert await stage.store.claim_next({"b": 5, "c": -1}, ALL, "w1", LEASE) == []
        assert await stage.store.claim_next({}, ALL, "w1", LEASE) == []

    async def test_only_jobs_in_the_line_are_next(self, stage: Stage) -> None:
        await stage.submit(ticketed=True)
        await stage.submit(delay=MINUTE)
        await stage.submit(expires_at=stage.clock.now() + SECOND, priority=9)
        await stage.running()
        await stage.store.cancel([(await stage.submit()).id])
        await stage.ended()
        waiting = await stage.submit()
        stage.clock.advance(SECOND)
        assert [claim.job for claim in await stage.store.claim_next({"mail": 9}, ALL, "w1", LEASE)] == [waiting.id]

    async def test_other_types_stay_in_the_line(self, stage: Stage) -> None:
        scan, *mails = [(await stage.submit(type=name, queue="a")).id for name in ("scan", "mail", "mail")]
        claims = await stage.store.claim_next({"a": 9}, ["mail"], "w1", LEASE)
        assert {claim.job for claim in claims} == set(mails)
        assert (await stage.job(scan)).state is State.QUEUED
        assert [claim.job for claim in await stage.store.claim_next({"a": 9}, ALL, "w1", LEASE)] == [scan]

    async def test_no_more_than_the_room_is_looked_at(self, stage: Stage) -> None:
        """However many jobs of other types stand first in a line."""
        for _ in range(3):
            await stage.submit(type="scan", queue="a")
        mail = await stage.submit(type="mail", queue="a")
        if stage.store.capabilities.one_line:
            assert await stage.store.claim_next({"a": 3}, ["mail"], "w1", LEASE) == []
        assert [claim.job for claim in await stage.store.claim_next({"a": 12}, ["mail"], "w1", LEASE)] == [mail.id]

    async def test_concurrent_workers_share_the_line(self, stage: Stage) -> None:
        await stage.store.submit([stage.new() for _ in range(40)], TICKET)
        batches = await asyncio.gather(*(stage.store.claim_next({"mail": 8}, ALL, f"w{n}", LEASE) for n in range(8)))
        jobs = [claim.job for batch in batches for claim in batch]
        jobs += [claim.job for claim in await stage.store.claim_next({"mail": 40}, ALL, "w9", LEASE)]
        assert len(jobs) == len(set(jobs)) == 40

    async def test_what_is_next_goes_to_a_ticket_or_to_a_claim(self, stage: Stage) -> None:
        await stage.store.submit([stage.new() for _ in range(30)], TICKET)
        claims, tickets = await asyncio.gather(
            stage.store.claim_next({"mail": 20}, ALL, "w1", LEASE), stage.store.dispatch({"mail": 20}, TICKET)
        )
        assert not {claim.job for claim in claims} & {ticket.job for ticket in tickets}
        rest = await stage.store.dispatch({"mail": 40}, TICKET)
        assert len(claims) + len(tickets) + len(rest) == 30

    async def test_the_counts_follow(self, stage: Stage) -> None:
        await stage.store.submit([stage.new(type=name, queue="a") for name in ("mail", "mail", "scan")], TICKET)
        await stage.store.claim_next({"a": 2}, ALL, "w1", LEASE)
        assert await stage.counted() == await stage.counted_by_hand()
        assert await stage.store.holders() == {"w1": 2}
        assert (await stage.store.outlook()).backlog == {"a"}
        await stage.store.claim_next({"a": 2}, ALL, "w1", LEASE)
        assert await stage.counted() == await stage.counted_by_hand()
        assert (await stage.store.outlook()).backlog == frozenset()

    async def test_such_a_claim_settles_and_releases_as_any(self, stage: Stage) -> None:
        await stage.store.submit([stage.new(), stage.new()], TICKET)
        ended, released = [
            Lease(claim.job, claim.fence) for claim in await stage.store.claim_next({"mail": 2}, ALL, "w1", LEASE)
        ]
        assert (await stage.settle(ended)).loss is None
        await stage.store.release([released])
        (again,) = await stage.store.claim_next({"mail": 2}, ALL, "w2", LEASE)
        assert (again.job, again.fence, again.attempt) == (released.job, 2, 1)
        assert (await stage.job(ended.job)).state is State.SUCCEEDED
        assert await stage.counted() == await stage.counted_by_hand()

    async def test_such_a_lease_is_renewed_and_reclaimed_as_any(self, stage: Stage) -> None:
        job = await stage.submit()
        (claim,) = await stage.store.claim_next({"mail": 1}, ALL, "w1", LEASE)
        stage.clock.advance(LEASE - SECOND)
        (renewal,) = await stage.store.renew("w1", [Lease(claim.job, claim.fence)], LEASE)
        assert renewal.loss is None
        assert await stage.store.lapse(everything=True) == 0
        stage.clock.advance(LEASE)
        assert [event.job for event in await stage.store.reclaim(9)] == [job.id]
        (again,) = await stage.store.claim_next({"mail": 1}, ALL, "w1", LEASE + timedelta(seconds=1))
        assert (again.fence, again.attempt, again.lease_seconds) == (3, 1, LEASE.total_seconds() + 1)

    async def test_a_lapsed_ticket_puts_its_job_back_in_the_line(self, stage: Stage) -> None:
        job = await stage.submit(ticketed=True)
        assert await stage.store.claim_next({"mail": 1}, ALL, "w1", LEASE) == []
        await stage.store.lapse(everything=True)
        assert [claim.job for claim in await stage.store.claim_next({"mail": 1}, ALL, "w1", LEASE)] == [job.id]
