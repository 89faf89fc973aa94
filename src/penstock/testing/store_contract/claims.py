"""Claim next: workers take what waits straight from the line, without a ticket for each job."""

import asyncio

from penstock.model.job import BacklogKey, FileLink, Lease, ObjectLink
from penstock.model.lifecycle import State
from penstock.testing.store_contract.stage import LEASE, MINUTE, SECOND, TICKET, OnStage, StoreStage

LINK = ObjectLink("objects/1", 9, "sha256:00", "text/plain")


class ClaimContract(OnStage):
    async def test_what_is_next_is_claimed_as_by_a_ticket(self, stage: StoreStage) -> None:
        job = await stage.submit(
            queue="slow", params=b'{"a":1}', timeout=SECOND * 2.5, tags=("red",), inputs=(FileLink("a", LINK),)
        )
        await stage.submit(queue="slow", params=None, params_object=LINK, priority=1)
        stage.clock.advance(SECOND)
        claims = await stage.claim_next({"slow": 9}, worker="w7")
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

    async def test_a_claim_tells_how_long_its_job_had_been_due(self, stage: StoreStage) -> None:
        ticketed, next_in_line = await stage.submit(delay=MINUTE), await stage.submit(delay=MINUTE)
        stage.clock.advance(MINUTE + SECOND * 1.5)
        await stage.sweeps.promote(9)
        (by_ticket,) = await stage.claim(ticketed.id)
        (from_line,) = await stage.claim_next({"mail": 9})
        (merged,) = [await stage.submit(type="scan", queue="mail")]
        (at_once,) = await stage.claim_next({"mail": 9}, "scan")
        assert (from_line.job, at_once.job) == (next_in_line.id, merged.id)
        assert (by_ticket.waited_seconds, from_line.waited_seconds, at_once.waited_seconds) == (1.5, 1.5, 0.0)

    async def test_the_line_goes_by_priority_and_then_by_age(self, stage: StoreStage) -> None:
        low, first, second, high = [(await stage.submit(priority=priority)).id for priority in (1, 5, 5, 9)]
        claims = await stage.claim_next({"mail": 3})
        assert len(claims) == 3
        claims += await stage.claim_next({"mail": 3})
        assert stage.lines(claim.job for claim in claims) == stage.lines([high, first, second, low])

    async def test_claims_keep_to_the_room_of_each_queue(self, stage: StoreStage) -> None:
        for _ in range(3):
            for queue in ("a", "b", "c"):
                await stage.submit(queue=queue)
        claims = await stage.claim_next({"a": 2, "b": 5, "c": 0, "none": 4})
        assert sorted(claim.queue for claim in claims) == ["a", "a", "b", "b", "b"]
        assert await stage.claim_next({"b": 5, "c": -1}) == []
        assert await stage.claim_next({}) == []

    async def test_only_jobs_in_the_line_are_next(self, stage: StoreStage) -> None:
        await stage.submit(ticketed=True)
        await stage.submit(delay=MINUTE)
        await stage.submit(expires_at=stage.clock.now() + SECOND, priority=9)
        await stage.run_job()
        await stage.store.cancel([(await stage.submit()).id])
        await stage.end_job()
        waiting = await stage.submit()
        stage.clock.advance(SECOND)
        assert [claim.job for claim in await stage.claim_next({"mail": 9})] == [waiting.id]

    async def test_other_types_stay_in_the_line(self, stage: StoreStage) -> None:
        scan, *mails = [(await stage.submit(type=name, queue="a")).id for name in ("scan", "mail", "mail")]
        claims = await stage.claim_next({"a": 9}, "mail")
        assert {claim.job for claim in claims} == set(mails)
        assert (await stage.job(scan)).state is State.QUEUED
        draw = await stage.submit(type="draw", queue="a")
        assert [claim.job for claim in await stage.claim_next({"a": 9}, "mail", "scan")] == [scan]
        assert (await stage.job(draw.id)).state is State.QUEUED

    async def test_no_type_stands_in_the_way_of_another(self, stage: StoreStage) -> None:
        """However many jobs of it are more urgent, older, and in the same queue."""
        await stage.store.submit([stage.new(type="scan", queue="a", priority=9) for _ in range(30)], TICKET)
        mail = await stage.submit(type="mail", queue="a")
        assert [claim.job for claim in await stage.claim_next({"a": 1}, "mail")] == [mail.id]
        assert await stage.shows_backlog({BacklogKey("a", "scan")})

    async def test_priority_counts_across_the_types_of_a_queue(self, stage: StoreStage) -> None:
        asked = [("mail", 5), ("scan", 1), ("scan", 9), ("mail", 7), ("scan", 5), ("mail", 1), ("scan", 8)]
        await stage.store.submit([stage.new(type=name, queue="a", priority=level) for name, level in asked], TICKET)
        taken: list[int] = []
        for room in (2, 3, 9):
            claims = await stage.claim_next({"a": room})
            assert len(claims) == min(room, len(asked) - len(taken))
            taken += [claim.priority for claim in claims]
        if stage.store.capabilities.one_order:
            assert taken == [9, 8, 7, 5, 5, 1, 1]

    async def test_of_equal_priority_the_type_that_has_waited_longest_goes_first(self, stage: StoreStage) -> None:
        names = ("scan", "mail", "mail", "scan")
        jobs = [(await stage.submit(type=name, queue="a")).id for name in names]
        taken = [claim.job for _ in names for claim in await stage.claim_next({"a": 1})]
        if stage.store.capabilities.one_order:
            assert taken == jobs
        assert sorted(taken) == sorted(jobs)

    async def test_many_types_share_a_queue(self, stage: StoreStage) -> None:
        names = [f"t{number}" for number in range(200)]
        await stage.store.submit([stage.new(type=name, queue="a") for name in names], TICKET)
        claims = await stage.claim_next({"a": 150, "b": 9}, *reversed(names))
        claims += await stage.claim_next({"a": 150}, *names)
        assert sorted(claim.type for claim in claims) == sorted(names)

    async def test_concurrent_workers_share_the_line(self, stage: StoreStage) -> None:
        await stage.store.submit([stage.new() for _ in range(40)], TICKET)
        batches = await asyncio.gather(*(stage.claim_next({"mail": 8}, worker=f"w{n}") for n in range(8)))
        jobs = [claim.job for batch in batches for claim in batch]
        jobs += [claim.job for claim in await stage.claim_next({"mail": 40}, worker="w9")]
        assert len(jobs) == len(set(jobs)) == 40

    async def test_what_is_next_goes_to_a_ticket_or_to_a_claim(self, stage: StoreStage) -> None:
        await stage.store.submit([stage.new() for _ in range(30)], TICKET)
        claims, tickets = await asyncio.gather(stage.claim_next({"mail": 20}), stage.dispatch({"mail": 20}))
        assert not {claim.job for claim in claims} & {ticket.job for ticket in tickets}
        rest = await stage.dispatch({"mail": 40})
        assert len(claims) + len(tickets) + len(rest) == 30

    async def test_the_counts_follow(self, stage: StoreStage) -> None:
        await stage.store.submit([stage.new(type=name, queue="a") for name in ("mail", "mail", "scan")], TICKET)
        await stage.claim_next({"a": 2})
        assert await stage.read_counts() == await stage.count_jobs()
        assert await stage.sweeps.running_by_worker() == {"w1": 2}
        assert len((await stage.sweeps.due_summary()).backlog) == 1
        await stage.claim_next({"a": 2})
        assert await stage.read_counts() == await stage.count_jobs()
        assert await stage.shows_backlog(frozenset())

    async def test_such_a_claim_settles_and_releases_as_any(self, stage: StoreStage) -> None:
        await stage.store.submit([stage.new(), stage.new()], TICKET)
        ended, released = [Lease(claim.job, claim.fence) for claim in await stage.claim_next({"mail": 2})]
        assert (await stage.settle(ended)).loss is None
        await stage.store.release([released])
        (again,) = await stage.claim_next({"mail": 2}, worker="w2")
        assert (again.job, again.fence, again.attempt) == (released.job, 2, 1)
        assert (await stage.job(ended.job)).state is State.SUCCEEDED
        assert await stage.read_counts() == await stage.count_jobs()

    async def test_such_a_lease_is_renewed_and_reclaimed_as_any(self, stage: StoreStage) -> None:
        job = await stage.submit()
        (claim,) = await stage.claim_next({"mail": 1})
        stage.clock.advance(LEASE - SECOND)
        (renewal,) = await stage.store.renew("w1", [Lease(claim.job, claim.fence)], LEASE)
        assert renewal.loss is None
        assert await stage.sweeps.expire_tickets(None) == 0
        stage.clock.advance(LEASE)
        assert [event.job for event in await stage.sweeps.reclaim(9)] == [job.id]
        (again,) = await stage.claim_next({"mail": 1}, lease=LEASE + SECOND)
        assert (again.fence, again.attempt, again.lease_seconds) == (3, 1, LEASE.total_seconds() + 1)

    async def test_a_lapsed_ticket_puts_its_job_back_in_the_line(self, stage: StoreStage) -> None:
        job = await stage.submit(ticketed=True)
        assert await stage.claim_next({"mail": 1}) == []
        await stage.sweeps.expire_tickets(None)
        assert [claim.job for claim in await stage.claim_next({"mail": 1})] == [job.id]
