"""Attempts that a worker's handler could not begin because the params do not fit it: given back for another worker."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.engine.catalog import Reading
from penstock.engine.fit import another_may_take, wait_before_another
from penstock.model.errors import CorruptObject, NotFound, ObjectsUnavailable
from penstock.model.ids import JobId
from penstock.model.job import JSON_NULL, ErrorCode, Job, Lease, Loss
from penstock.model.wire import Outcome, Refusal

if TYPE_CHECKING:
    from penstock.engine import Engine


class Misfits:
    """Takes such attempts out of what is to be settled."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._store = engine.store

    async def part(self, outcomes: Sequence[Outcome], jobs: Mapping[JobId, Job]) -> tuple[list[Outcome], list[Refusal]]:
        """What is to be settled, and what was done about the rest: `jobs` that another worker may take."""
        misfits = {one.job: jobs[one.job] for one in outcomes if _is_misfit(one) and one.job in jobs}
        if not misfits:
            return list(outcomes), []
        params = {job.id: await self._params(job) for job in misfits.values()}
        unsure = {id for id, value in params.items() if isinstance(value, ObjectsUnavailable)}
        known = {job: value for job, value in params.items() if isinstance(value, bytes)}
        others = await self._for_others([(misfits[job], value) for job, value in known.items()])
        told = [Refusal(one.job, one.fence, Loss.UNSURE) for one in outcomes if one.job in unsure]
        told += await self._give_back([(misfits[one.job], one.fence) for one in outcomes if one.job in others])
        return [one for one in outcomes if one.job not in unsure | others], told

    async def _params(self, job: Job) -> bytes | ObjectsUnavailable | None:
        """None where they are lost for good."""
        if job.params is not None or job.params_object is None:
            return job.params or JSON_NULL
        try:
            return await self._engine.files.read_value(job.params_object)
        except (NotFound, CorruptObject):
            return None
        except ObjectsUnavailable as trouble:
            return trouble

    async def _for_others(self, misfits: Sequence[tuple[Job, bytes]]) -> set[JobId]:
        def left(reading: Reading) -> set[JobId]:
            now = reading.shard_now
            return {job.id for job, params in misfits if another_may_take(job, params, reading, now)}

        found = left(await self._engine.catalog.read())
        # Nothing fails by what was known a second ago: a newer declaration may have been told since.
        return found if len(found) == len(misfits) else left(await self._engine.catalog.read_store())

    async def _give_back(self, misfits: Sequence[tuple[Job, int]]) -> list[Refusal]:
        """Uncharged, and due again a little later."""
        by_delay: defaultdict[timedelta, list[Lease]] = defaultdict(list)
        for job, fence in misfits:
            by_delay[wait_before_another(job)].append(Lease(job.id, fence))
        told: list[Refusal] = []
        for delay, leases in by_delay.items():
            answers = await self._store.release(leases, delay=delay)
            self._engine.moved([answer.event for answer in answers if answer.event is not None])
            told += [Refusal(one.job, one.fence, _loss(one.loss)) for one in answers]
        return told


def _is_misfit(outcome: Outcome) -> bool:
    return outcome.error is not None and outcome.error.code is ErrorCode.INVALID_PARAMS


def _loss(loss: Loss | None) -> Loss:
    """A repeat of what was done already is no loss."""
    return Loss.GIVEN_BACK if loss in (None, Loss.MINE_ALREADY) else loss
