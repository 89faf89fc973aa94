"""Many jobs in one request: each is accepted or refused by itself, and named by its index."""

from collections.abc import Sequence

from msgspec import Raw

from penstock.api.bodies import decoded
from penstock.api.exchange import Call, Reply, json_reply
from penstock.api.idempotency import BATCH_KEY, header_key, keyed
from penstock.api.operation import Answer, operation
from penstock.api.problems import problem_of
from penstock.model.errors import PenstockError, TooLarge
from penstock.model.job import Submission
from penstock.model.keys import KeyScope
from penstock.model.wire import BatchAnswer, BatchRequest, BatchResponse, SubmitRequest


@operation(
    "POST /v1/jobs/batch",
    {200: Answer("What became of each job, in the order given.", BatchResponse)},
    body=BatchRequest,
    headers=(BATCH_KEY,),
)
async def submit_batch(call: Call) -> Reply:
    """Add many jobs. With an Idempotency-Key, job n without a key of its own gets `<key>/n`."""
    batch = await call.json(BatchRequest)
    _check_size(len(batch.jobs), call.engine.settings.limits.batch_jobs)
    read = _read(call, batch.jobs, header_key(call, BATCH_KEY))
    wanted = [request for request in read if isinstance(request, SubmitRequest)]
    submitted = iter(await call.engine.jobs.submit(wanted) if wanted else ())
    outcomes = [next(submitted) if isinstance(request, SubmitRequest) else request for request in read]
    return json_reply(200, _response(outcomes))


def _check_size(jobs: int, limit: int) -> None:
    if jobs > limit:
        raise TooLarge(
            f"jobs: {jobs:,} in one batch are too many; send at most {limit:,} at a time (limits.batch_jobs)"
        )


def _read(call: Call, items: Sequence[Raw], key: str | None) -> list[SubmitRequest | PenstockError]:
    if key is None:
        return [_read_one(call, item) for item in items]
    return [_read_one(call, item, f"{key}/{index}") for index, item in enumerate(items)]


def _read_one(call: Call, item: Raw, key: str | None = None) -> SubmitRequest | PenstockError:
    try:
        request = decoded(item, SubmitRequest)
        if request.interval is not None:
            call.require(KeyScope.SCHEDULES)
        return keyed(request, key) if request.idempotency_key is None else request
    except PenstockError as refusal:
        return refusal


def _response(outcomes: Sequence[Submission | PenstockError]) -> BatchResponse:
    answers = tuple([_answer(index, outcome) for index, outcome in enumerate(outcomes)])
    refused = sum(answer.problem is not None for answer in answers)
    return BatchResponse(len(answers) - refused, refused, answers)


def _answer(index: int, outcome: Submission | PenstockError) -> BatchAnswer:
    if isinstance(outcome, PenstockError):
        return BatchAnswer(index, problem=problem_of(outcome, f"#/jobs/{index}"))
    return BatchAnswer(index, outcome.job.id, outcome.job.state, outcome.event is not None)


OPERATIONS = (submit_batch,)
