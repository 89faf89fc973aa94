"""From inserted to ticketed: what a submit and a tick do alike around their write."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.engine.catalog import Catalog
from penstock.engine.tickets import Tickets
from penstock.model.ids import shard_of
from penstock.model.job import BacklogKey, Job, NewJob, Ticket


class TicketPosting:
    """Jobs due now get a ticket at once where the window has room, so that an idle system answers at once."""

    def __init__(self, catalog: Catalog, tickets: Tickets) -> None:
        self._catalog = catalog
        self._tickets = tickets

    async def mark(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """The jobs to insert, those `ticketed` that are due and find room; `post` must follow the write."""
        paused = (await self._catalog.read()).paused
        wanted = Counter([(job.queue, job.type) for job in jobs if job.delay is None and job.due_at is None])
        room = await self._tickets.room([BacklogKey(*line) for line in wanted])
        # All or nothing per line: a part of a batch in the broker would overtake the rest of it.
        fits = {line for line in room if line.queue not in paused and wanted[line] <= room[line]}
        if not fits:
            return list(jobs)
        # A line equals the tuple of its parts, which is quicker to make.
        return [
            replace(job, ticketed=True)
            if job.delay is None and job.due_at is None and (job.queue, job.type) in fits
            else job
            for job in jobs
        ]

    async def post(self, marked: Sequence[NewJob], created: Sequence[Job] | Sequence[NewJob]) -> None:
        """Publish the tickets of those that were created, and tell the dispatcher of the others."""
        ticketed = {job.id for job in marked if job.ticketed}
        await self._tickets.publish([_ticket(job) for job in created if job.id in ticketed])
        for line in {(job.queue, job.type) for job in created if job.id not in ticketed}:
            self._tickets.mark_backlog(BacklogKey(*line))


def _ticket(job: Job | NewJob) -> Ticket:
    return Ticket(shard_of(job.id), job.id, job.queue, job.type, job.priority)
