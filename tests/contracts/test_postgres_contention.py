"""The PostgreSQL store beside other transactions: it waits for none, takes nothing that moved, repeats nothing."""

import psycopg
import pytest

from penstock.model.errors import StoreUnavailable
from penstock.store.postgres import PostgresStore
from penstock.testing.clock import SimulatedClock
from penstock.testing.store_contract.stage import LEASE, TICKET, StoreStage
from servers import FaultProxy
from servers.proxy import Fault
from tests.postgres import database, new_store


async def test_a_lease_that_is_being_renewed_is_not_reclaimed() -> None:
    """The reaper does not wait for another move that has the row, nor does it go by what it read before."""
    clock = SimulatedClock()
    async with new_store(18, clock) as store:
        stage = StoreStage(store, clock)
        lease = await stage.run_job()
        clock.advance(LEASE)
        with psycopg.connect(database(18)) as holder:
            holder.execute("UPDATE penstock.jobs SET lease_until = lease_until + 15000")
            assert await store.reclaim(9) == []
        assert await store.reclaim(9) == []
        (renewal,) = await store.renew("w1", [lease], LEASE)
        assert renewal.loss is None


@pytest.mark.parametrize("types", [("mail",), ("mail", "scan")])
async def test_a_claim_from_the_line_passes_over_what_another_move_holds(types: tuple[str, ...]) -> None:
    """It does not wait for it, and does not claim it afterwards."""
    clock = SimulatedClock()
    async with new_store(18, clock) as store:
        stage = StoreStage(store, clock)
        held, free = (await stage.submit()).id, (await stage.submit()).id
        with psycopg.connect(database(18)) as holder:
            holder.execute("UPDATE penstock.jobs SET ticket_until = 1 WHERE id = %s", [held])
            claims = await stage.claim_next({"mail": 9}, *types)
        assert [claim.job for claim in claims] == [free]
        assert await stage.claim_next({"mail": 9}, *types) == []


async def test_a_call_whose_answer_was_lost_is_made_once() -> None:
    """It may have been done: to do it again would claim other jobs, and leave the first ones to nobody."""
    clock = SimulatedClock()
    async with new_store(18, clock) as store:
        stage = StoreStage(store, clock)
        await store.submit([stage.new() for _ in range(9)], TICKET)
        with FaultProxy(int(str(psycopg.conninfo.conninfo_to_dict(database(18))["port"]))) as proxy:
            far = await PostgresStore.open(f"postgresql://penstock@127.0.0.1:{proxy.port}/jobs", clock=clock)
            # Prepared on its connection, so that the answer that is lost is the one about the jobs.
            assert await StoreStage(far, clock).claim_next({"other": 2}) == []
            proxy.fault = Fault.DEAF
            with pytest.raises(StoreUnavailable):
                await StoreStage(far, clock).claim_next({"mail": 2})
            await far.close()
        assert sum((await store.running_by_worker()).values()) == 2
