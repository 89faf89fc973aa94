"""Workers: the list of them, and the moves by which a worker reaches the engine over HTTP."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from penstock.api.access import own_queues, own_types, own_worker, refuse_foreign_jobs
from penstock.api.files import DIGEST_HEADER, digest_mismatch, sent_content_type, sent_digest
from penstock.api.operation import Answer, Header, operation
from penstock.api.request import NO_CONTENT, ApiReply, ApiRequest, ClientGone, is_job_id, json_reply
from penstock.engine import Engine
from penstock.model.clock import seconds
from penstock.model.errors import CorruptObject, Invalid, TooLarge
from penstock.model.job import Claim, Lease, ObjectLink
from penstock.model.keys import KeyScope
from penstock.model.wire.jobs import (
    ClaimRequest,
    ClaimResponse,
    JoinRequest,
    JoinResponse,
    LogEntry,
    LogRequest,
    Outcome,
    ReleaseRequest,
    RenewRequest,
    RenewResponse,
    SettleRequest,
    SettleResponse,
    Sha256,
    WorkerList,
)
from penstock.model.workers import DrainRequest, JobType, Worker, WorkRequest
from penstock.store.answers import run_to_end

T = TypeVar("T")

DECLARATION_BYTES = 256 * 1024
"""Most bytes of a declaration: every server keeps it, and reads all again whenever one changes."""


@operation("POST /v1/workers/{worker}/claim", {200: Answer("The claimed jobs.", ClaimResponse)}, body=ClaimRequest)
async def claim_jobs(call: ApiRequest) -> ApiReply:
    """Wait for work: answered the moment there is some, or with none after `wait_seconds`."""
    worker, request = call.path("worker"), await _read_body(call, ClaimRequest)
    queues = own_queues(call, request.queues)
    served = None if queues is None else frozenset(queues)
    others, declined = frozenset(request.except_queues), frozenset(request.only_given_back)
    wanted = WorkRequest(frozenset(request.types), served, others, declined)
    wait = seconds(min(request.wait_seconds, call.engine.settings.limits.wait_seconds))
    claiming = asyncio.ensure_future(call.engine.worker_api.claim(worker, wanted, request.limit, wait))
    claims = await _hand_over(call, claiming)
    return json_reply(200, ClaimResponse(tuple(claims)))


@operation("POST /v1/workers/{worker}/settle", {200: Answer("What was refused.", SettleResponse)}, body=SettleRequest)
async def settle_jobs(call: ApiRequest) -> ApiReply:
    """Record how attempts ended. May be repeated."""
    request = await _read_body(call, SettleRequest)
    await _check_leases(call, request.outcomes)
    return json_reply(200, SettleResponse(tuple(await call.engine.worker_api.settle(request.outcomes))))


@operation("POST /v1/workers/{worker}/renew", {200: Answer("One answer per lease.", RenewResponse)}, body=RenewRequest)
async def renew_leases(call: ApiRequest) -> ApiReply:
    """Keep leases alive and report the worker; the answer says which are lost or asked to cancel.

    `drain` is there when the worker itself is asked to drain, with the patience that is left.
    """
    request = await _read_body(call, RenewRequest)
    _check_same_worker(call, request.worker)
    await _check_leases(call, request.leases)
    worker = own_worker(call, request.worker)
    return json_reply(200, await call.engine.worker_api.renew(worker, request.leases))


@operation("POST /v1/workers/{worker}/release", {200: Answer("What was refused.", SettleResponse)}, body=ReleaseRequest)
async def release_leases(call: ApiRequest) -> ApiReply:
    """Give jobs back unharmed."""
    request = await _read_body(call, ReleaseRequest)
    await _check_leases(call, request.leases)
    refused = await call.engine.worker_api.release(request.leases, suspects=request.suspects)
    return json_reply(200, SettleResponse(tuple(refused)))


@operation("POST /v1/workers/{worker}/log", {200: Answer("What was not kept.", SettleResponse)}, body=LogRequest)
async def append_log(call: ApiRequest) -> ApiReply:
    """Keep what jobs wrote; lines of a lost attempt are dropped, those of a shard that gave no answer are unsure."""
    request = await _read_body(call, LogRequest)
    await _check_leases(call, request.entries)
    return json_reply(200, SettleResponse(tuple(await call.engine.worker_api.log(request.entries))))


@operation(
    "PUT /v1/workers/{worker}/outputs/{job}/{fence}/{number}",
    {201: Answer("Where the output lies; a settle links to it.", ObjectLink)},
    takes_bytes=True,
    headers=(Header(DIGEST_HEADER, Sha256, "The body's SHA-256.", required=True),),
    refusals=(404, 409, 413),
)
async def write_output(call: ApiRequest) -> ApiReply:
    """Store an attempt's output. Nobody sees it before the settle that links to it is accepted."""
    lease, number = Lease(call.job(), call.path("fence")), call.path("number")
    digest, content_type = sent_digest(call), sent_content_type(call)
    if digest is None:
        raise Invalid(f"header {DIGEST_HEADER}: is required")
    await refuse_foreign_jobs(call, (lease.job,))
    try:
        link = await call.engine.worker_api.write_output(lease, number, call.file(), content_type, digest)
    except CorruptObject:
        raise digest_mismatch() from None
    return json_reply(201, link)


@operation("POST /v1/workers", {200: Answer("How leases work here.", JoinResponse)}, body=JoinRequest)
async def join(call: ApiRequest) -> ApiReply:
    """Present a worker and declare the types it can run. May be repeated."""
    request = await call.json(JoinRequest)
    _check_sizes(request.types)
    worker, types = own_worker(call, request.worker), own_types(call, request.types)
    within = None if call.key is None else call.key.queues
    return json_reply(200, await call.engine.worker_api.join(worker, types, within))


@operation("GET /v1/workers", {200: Answer("Every worker, by id.", WorkerList)})
async def list_workers(call: ApiRequest) -> ApiReply:
    """List workers; `lost` are those not heard from for longer than a lease.

    Of those lost for more than five minutes, the last hundred.
    """
    return json_reply(200, WorkerList(tuple(await call.engine.queues.list_workers())))


@operation(
    "POST /v1/workers/{worker}/drain",
    {200: Answer("The worker, which is asked now.", Worker)},
    body=DrainRequest,
    refusals=(404,),
)
async def drain_worker(call: ApiRequest) -> ApiReply:
    """Ask a worker to drain: it claims no more, finishes its jobs and ends.

    It learns of it with its next heartbeat. After `patience_seconds` it gives back the jobs that have not ended; null:
    they may take as long as it takes. A repeated request may shorten the patience, not extend it.
    """
    worker, request = call.path("worker"), await _read_body(call, DrainRequest)
    return json_reply(200, await call.engine.queues.drain_worker(worker, request.patience))


@operation("DELETE /v1/workers/{worker}", {204: Answer("Forgotten.")})
async def leave(call: ApiRequest) -> ApiReply:
    """Say goodbye, after a drain. May be repeated."""
    await call.engine.worker_api.leave(call.path("worker"))
    return NO_CONTENT


async def _read_body(call: ApiRequest, kind: type[T]) -> T:
    """Read the body of a move. The path must name a worker, even where the move needs only a fence."""
    call.path("worker")
    return await call.json(kind)


async def _hand_over(call: ApiRequest, claiming: "asyncio.Future[list[Claim]]") -> list[Claim]:
    """The claims, if the client is still connected and its key still valid; else they are released at once.

    Otherwise jobs claimed for a worker that vanished while it waited would be held until their leases run out.
    """
    handed_over = False
    try:
        if not await call.stays_for(claiming):
            raise ClientGone
        claims = claiming.result()
        if claims and call.key is not None:
            await call.admit((KeyScope.WORKER,))
        handed_over = True
        return claims
    finally:
        if not handed_over:
            await run_to_end(_give_back(call.engine, claiming))


async def _give_back(engine: Engine, claiming: "asyncio.Future[list[Claim]]") -> None:
    claiming.cancel()
    await asyncio.wait((claiming,))
    if not claiming.cancelled() and claiming.exception() is None:
        await engine.worker_api.release([Lease(claim.job, claim.fence) for claim in claiming.result()])


def _check_sizes(types: Sequence[JobType]) -> None:
    for one in types:
        if len(msgspec.json.encode(one)) > DECLARATION_BYTES:
            raise TooLarge(f"the declaration of the type {one.name!r} may have at most {DECLARATION_BYTES:,} bytes")


def _check_same_worker(call: ApiRequest, worker: Worker) -> None:
    if call.path("worker") != worker.id:
        raise Invalid(f"worker.id: {worker.id!r} is not the worker of the path, {call.path('worker')!r}")


async def _check_leases(call: ApiRequest, shown: Sequence[Lease | Outcome | LogEntry]) -> None:
    for one in shown:
        if is_job_id(one.job) is None:
            raise Invalid(f"job: {one.job!r} is not a job id")
    await refuse_foreign_jobs(call, (one.job for one in shown))


OPERATIONS = (
    claim_jobs,
    settle_jobs,
    renew_leases,
    release_leases,
    append_log,
    write_output,
    join,
    list_workers,
    drain_worker,
    leave,
)
