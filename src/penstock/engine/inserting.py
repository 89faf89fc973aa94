"""From prepared to durable: new jobs into their shards, together with what other callers have for the same ones."""

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from penstock.engine.by_shard import each, split
from penstock.engine.together import Batcher
from penstock.model.errors import Unavailable
from penstock.model.ids import ShardId, shard_of
from penstock.model.job import NewJob
from penstock.model.lifecycle import State
from penstock.model.submission import Held, Inserted, Misplaced, Submission

if TYPE_CHECKING:
    from penstock.engine import Engine


class Insertion:
    """One write at a time into each shard, for all who have jobs for it meanwhile.

    Jobs with keys have one of their own: it may have to wait for a key that another transaction holds.
    """

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._writes: dict[tuple[ShardId, bool], Batcher[NewJob, Submission]] = {}

    async def insert(self, jobs: Sequence[NewJob]) -> list[Submission | Unavailable]:
        """Each shard's jobs by themselves: what one does not answer for is unavailable, and never tried elsewhere.

        A single job's shard that does not answer is raised.
        """
        if any([job.ring for job in jobs]):
            answers = await self._insert_unless_moved(jobs)
        else:
            answers = await self._insert(jobs)
        return [answer.refusal if isinstance(answer, Held | Misplaced) else answer for answer in answers]

    async def insert_in_one(self, jobs: Sequence[NewJob]) -> list[Submission]:
        """Jobs of a single shard; Unavailable if it does not answer, cannot tell about a key, or takes one not."""
        answers = await self._ask(jobs) if jobs else []
        for answer in answers:
            if isinstance(answer, Held | Misplaced):
                raise answer.refusal
        return answers

    async def _insert_unless_moved(self, jobs: Sequence[NewJob]) -> list[Submission | Unavailable]:
        """Look first for the jobs that keys were given before the ring changed; insert the others."""
        moved = await self._engine.store.find_moved(jobs)
        answers = iter(await self._insert([job for job, known in zip(jobs, moved, strict=True) if known is None]))
        return [next(answers) if known is None else known for known in moved]

    async def _insert(self, jobs: Sequence[NewJob]) -> list[Submission | Unavailable]:
        if len(jobs) < 2:
            return [*await self._ask(jobs)] if jobs else []
        places = split(enumerate(jobs), lambda numbered: shard_of(numbered[1].id))
        answers: dict[int, Submission | Unavailable] = {}
        parts = [[job for _, job in part] for part in places.values()]
        for numbered, answer in zip(places.values(), await each(parts, self._ask), strict=True):
            told = [answer] * len(numbered) if isinstance(answer, Unavailable) else answer
            answers.update(zip([number for number, _ in numbered], told, strict=True))
        return [answers[number] for number in range(len(jobs))]

    def _ask(self, jobs: Sequence[NewJob]) -> Awaitable[list[Submission]]:
        place = (shard_of(jobs[0].id), any([job.key is not None for job in jobs]))
        if (together := self._writes.get(place)) is None:
            together = self._writes[place] = Batcher(self._write)
        return together.submit(jobs)

    async def _write(self, jobs: Sequence[NewJob]) -> list[Submission]:
        marked = await self._engine.posting.mark(jobs)
        answers = await self._engine.store.submit(marked, self._engine.tickets.ticket_for)
        made = [answer for answer in answers if isinstance(answer, Inserted)]
        self._engine.meters.submitted += len(made)
        await self._engine.posting.post(marked, [one.new for one in made])
        # Of all that happens to jobs, only this concerns new ones; an event for each would tell no more.
        self._engine.arrivals.publish(frozenset([one.new.queue for one in made if one.state is State.QUEUED]))
        return answers
