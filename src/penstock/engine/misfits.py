"""Attempts that a worker's handler could not begin because the params do not fit it: given back for another worker."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.engine.catalog import CatalogReading
from penstock.engine.fit import signature_of_holder, wait_for_another
from penstock.model.declarations import unfit_type
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
        told += await self._give_back(
            [(Lease(one.job, one.fence), others[one.job]) for one in outcomes if one.job in others]
        )
        return [one for one in outcomes if one.job not in unsure and one.job not in others], told

    async def _params(self, job: Job) -> bytes | ObjectsUnavailable | None:
        """None where they are lost for good."""
        if job.params is not None or job.params_object is None:
            return job.params or JSON_NULL
        try:
            return await self._engine.files.read_value(job.params_object)
        except (NotFound, CorruptObject):
            return None
        except ObjectsUnavailable as error:
            return error

    async def _for_others(self, misfits: Sequence[tuple[Job, bytes]]) -> dict[JobId, "_GiveBackTerms"]:
        """On which terms each is given back that another worker may take."""

        def terms(reading: CatalogReading) -> dict[JobId, _GiveBackTerms]:
            found = {job.id: _terms_of(job, params, reading) for job, params in misfits}
            return {job: one for job, one in found.items() if one is not None}

        found = terms(await self._engine.catalog.read())
        # Nothing fails by what was known a second ago: a newer declaration may have been told since.
        return found if len(found) == len(misfits) else terms(await self._engine.catalog.read_store())

    async def _give_back(self, misfits: Sequence[tuple[Lease, "_GiveBackTerms"]]) -> list[Refusal]:
        """Uncharged. First the name under which it waits: whoever dies in between leaves it running under that."""
        told: list[Refusal] = []
        for terms in {terms for _, terms in misfits}:
            leases = [lease for lease, its in misfits if its == terms]
            await self._store.retype(leases, terms.name)
            answers = await self._store.release(leases, delay=terms.delay)
            self._engine.publish_events([answer.event for answer in answers if answer.event is not None])
            told += [
                Refusal(one.job, one.fence, loss) for one in answers if (loss := _loss(one.loss, terms)) is not None
            ]
        return told


class _GiveBackTerms(Struct, frozen=True):
    """Under which name a job waits for another worker, and for how long at least.

    `outdated`: its worker has another declaration than the current one, and should leave the type to those that do.
    """

    name: str
    delay: timedelta | None
    outdated: bool


def _terms_of(job: Job, params: bytes, reading: CatalogReading) -> _GiveBackTerms | None:
    wait = wait_for_another(job, params, reading, reading.shard_now)
    if wait is None:
        return None
    refused, current = signature_of_holder(job, reading), reading.types.get(reading.run_as(job.type))
    name = job.type if refused is None else unfit_type(job.type, refused)
    return _GiveBackTerms(name, wait or None, outdated=current is None or current.signature != refused)


def _is_misfit(outcome: Outcome) -> bool:
    return outcome.error is not None and outcome.error.code is ErrorCode.INVALID_PARAMS


def _loss(loss: Loss | None, terms: _GiveBackTerms) -> Loss | None:
    """A repeat of what was done already is no loss."""
    if loss not in (None, Loss.MINE_ALREADY):
        return loss
    return Loss.GIVEN_BACK if terms.outdated else None
