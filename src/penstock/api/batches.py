"""Many jobs in one request: each is accepted or refused by itself, and named by its index."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.api.bodies import decode_json
from penstock.api.operation import Answer, Header, operation
from penstock.api.problems import problem_of
from penstock.api.request import ApiReply, ApiRequest, Headers, json_reply
from penstock.engine.batches import BatchKey, SubmitOutcome
from penstock.model.errors import Invalid, PenstockError, TooLarge
from penstock.model.keys import KeyScope
from penstock.model.sdk_keys import REPEATED_HEADER, SHARDS_HEADER, write_shards
from penstock.model.submission import Inserted
from penstock.model.wire.jobs import BatchAnswer, BatchRequest, BatchResponse, Key, SubmitRequest

IDEMPOTENCY_KEY = Header("Idempotency-Key", Key, "Repeating the request with the same key gives the same job back.")
_REPEATED = REPEATED_HEADER.lower().encode()
REPEATED = Header(
    REPEATED_HEADER,
    bool,
    "`true` with a key that the SDK made: an earlier request under it may have been carried out.",
)
BATCH_KEY = Header(
    "Idempotency-Key",
    Key,
    "Repeating the request with the same key and the same jobs gives the same jobs back; those with keys of their own "
    "are found by these.",
)


def header_key(call: ApiRequest, header: Header) -> str | None:
    """The header's key; Invalid when it is empty, too long or not printable ASCII."""
    given = call.header(b"idempotency-key")
    if given is None:
        return None
    try:
        return cast(str, msgspec.convert(given, header.kind))
    except msgspec.ValidationError as error:
        raise Invalid(f"header Idempotency-Key: {error}") from None


def is_repeated(call: ApiRequest) -> bool:
    """Whether an earlier request under the same key may have been carried out; Invalid if the header is no boolean."""
    given = call.header(_REPEATED)
    if given not in (None, "true", "false"):
        raise Invalid(f"header {REPEATED_HEADER}: send `true`, `false` or no such header")
    return given == "true"


def shards_header(call: ApiRequest, key: str | None) -> Headers:
    """For a key of the SDK: the shards that its next ones may name."""
    shards = call.engine.sdk_placement.shards(key)
    return () if shards is None else ((SHARDS_HEADER.lower().encode(), write_shards(shards).encode()),)


def with_header_key(request: SubmitRequest, key: str | None) -> SubmitRequest:
    """The request under the header's key; Invalid when its body names another one."""
    if key is None or request.idempotency_key == key:
        return request
    if request.idempotency_key is not None:
        raise Invalid("idempotency_key: the header Idempotency-Key and the body name different keys; send one of them")
    return replace(request, idempotency_key=key)


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    """A BatchRequest whose jobs are still to be read."""

    jobs: Raw


@operation(
    "POST /v1/jobs/batch",
    {200: Answer("What became of each job, in the order given.", BatchResponse)},
    body=BatchRequest,
    headers=(BATCH_KEY, REPEATED),
    refusals=(409,),
)
async def submit_batch(call: ApiRequest) -> ApiReply:
    """Add many jobs. Repeating the request under its Idempotency-Key adds none of them twice."""
    jobs = (await call.json(_Envelope)).jobs
    key = header_key(call, BATCH_KEY)
    read = _read_jobs(call, jobs)
    _check_size(len(read), call.engine.settings.limits.batch_jobs)
    wanted = {index: request for index, request in enumerate(read) if type(request) is SubmitRequest}
    with call.engine.sdk_placement.choosing(key, repeated=is_repeated(call)):
        outcomes = await _submit(call, wanted, None if key is None else BatchKey(key, _fingerprint(jobs)))
    if len(wanted) < len(read):
        refused = {index: refusal for index, refusal in enumerate(read) if isinstance(refusal, PenstockError)}
        outcomes = {**refused, **outcomes}
    return json_reply(200, _response(outcomes), shards_header(call, key))


def _read_jobs(call: ApiRequest, jobs: Raw) -> Sequence[SubmitRequest | PenstockError]:
    """Decode all jobs at once; if one is invalid, decode them one by one, so that each is refused for its own fault."""
    try:
        requests = _requests.decode(jobs)
    except (msgspec.ValidationError, Invalid):
        batch = decode_json(b'{"jobs":%b}' % bytes(jobs), BatchRequest)
        return [_read_one(call, item) for item in batch.jobs]
    return [_check_allowed(call, request) if request.interval else request for request in requests]


def _read_one(call: ApiRequest, item: Raw) -> SubmitRequest | PenstockError:
    try:
        return _check_allowed(call, decode_json(item, SubmitRequest))
    except PenstockError as error:
        return error


def _check_allowed(call: ApiRequest, request: SubmitRequest) -> SubmitRequest | PenstockError:
    try:
        if request.interval is not None:
            call.require(KeyScope.SCHEDULES)
        return request
    except PenstockError as error:
        return error


def _check_size(jobs: int, limit: int) -> None:
    if jobs > limit:
        raise TooLarge(
            f"jobs: {jobs:,} in one batch are too many; send at most {limit:,} at a time (limits.batch_jobs)"
        )


async def _submit(
    call: ApiRequest, wanted: Mapping[int, SubmitRequest], key: BatchKey | None
) -> Mapping[int, SubmitOutcome]:
    if key is not None:
        return await call.engine.jobs.submit_batch(wanted, key)
    return dict(zip(wanted, await call.engine.jobs.submit([*wanted.values()]), strict=True))


def _fingerprint(jobs: Raw) -> bytes:
    return hashlib.sha256(jobs).digest()[:16]


def _response(outcomes: Mapping[int, SubmitOutcome]) -> BatchResponse:
    answers = tuple([_answer(index, outcomes[index]) for index in range(len(outcomes))])
    refused = sum([answer.problem is not None for answer in answers])
    return BatchResponse(len(answers) - refused, refused, answers)


def _answer(index: int, outcome: SubmitOutcome) -> BatchAnswer:
    # Most are new.
    if type(outcome) is Inserted:
        return BatchAnswer(index, outcome.new.id, outcome.state, True)
    if isinstance(outcome, PenstockError):
        return BatchAnswer(index, problem=problem_of(outcome, f"#/jobs/{index}"))
    return BatchAnswer(index, outcome.id, outcome.state, outcome.created)


_requests = msgspec.json.Decoder(list[SubmitRequest])

OPERATIONS = (submit_batch,)
