"""The engine over HTTP, as a worker reaches it that holds only a server's address."""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from msgspec.structs import replace

from penstock.model.errors import BY_CODE, CorruptObject, PenstockError, Refused, ServerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Claim, FileLink, Lease, ObjectLink, Renewal
from penstock.model.schedule_wire import OnConflict, ScheduleRequest
from penstock.model.wire import (
    ClaimRequest,
    ClaimResponse,
    JoinRequest,
    JoinResponse,
    LogEntry,
    LogRequest,
    Outcome,
    Problem,
    Refusal,
    ReleaseRequest,
    RenewRequest,
    RenewResponse,
    SettleRequest,
    SettleResponse,
)
from penstock.model.workers import JobType, Subscription, Worker
from penstock.worker.calls import CONNECT_SECONDS, Broken, Calls

ANSWER_SECONDS = 10.0
TRANSFER_SECONDS = 60.0
JSON = MappingProxyType({"content-type": "application/json"})

T = TypeVar("T")


class HttpReach:
    """Keeps Reach over one server's `/v1/workers`. No answer in time, or none at all, is ServerUnavailable."""

    def __init__(self, url: str) -> None:
        self._worker = ""
        self._url = url
        self._encoder = msgspec.json.Encoder()
        self._calls = Calls(url)
        self._files: httpx2.AsyncClient | None = None

    async def join(self, worker: Worker, types: Sequence[JobType]) -> JoinResponse:
        self._worker = worker.id
        return await self._post("/v1/workers", JoinRequest(worker, tuple(types)), JoinResponse)

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        for schedule in schedules:
            request = replace(schedule, on_conflict=OnConflict.REPLACE)
            await self._send("POST", "/v1/schedules", self._encoder.encode(request), JSON)

    async def claim(self, worker: str, wanted: Subscription, limit: int, wait: timedelta) -> list[Claim]:
        queues = tuple(sorted(wanted.queues)) if wanted.queues is not None else None
        request = ClaimRequest(tuple(sorted(wanted.types)), limit, wait.total_seconds(), queues)
        answer = await self._post(self._path("claim"), request, ClaimResponse, wait.total_seconds() + ANSWER_SECONDS)
        return list(answer.claims)

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> list[Renewal]:
        answer = await self._post(self._path("renew"), RenewRequest(worker, tuple(leases)), RenewResponse)
        return list(answer.renewals)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        answer = await self._post(self._path("settle"), SettleRequest(tuple(outcomes)), SettleResponse)
        return list(answer.refused)

    async def release(self, leases: Sequence[Lease], *, suspects: bool = False) -> list[Refusal]:
        answer = await self._post(self._path("release"), ReleaseRequest(tuple(leases), suspects), SettleResponse)
        return list(answer.refused)

    async def log(self, entries: Sequence[LogEntry]) -> None:
        await self._send("POST", self._path("log"), self._encoder.encode(LogRequest(tuple(entries))), JSON)

    async def read_input(self, job: JobId, file: FileLink) -> AsyncIterator[bytes]:
        path = f"/v1/jobs/{job}/inputs/{quote(file.name, safe='')}"
        digest = hashlib.sha256()
        try:
            async with self._transfers().stream("GET", path) as answer:
                if not answer.is_success:
                    raise problem_of(answer.status_code, await answer.aread())
                async for chunk in answer.aiter_bytes():
                    digest.update(chunk)
                    yield chunk
        except httpx2.HTTPError as error:
            raise self._unavailable(error) from None
        if digest.hexdigest() != file.object.digest:
            raise CorruptObject(f"what was read of {file.name!r} does not match its digest")

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        path = self._path(f"outputs/{lease.job}/{lease.fence}/{number}")
        headers = {"content-type": content_type, "digest-sha256": digest}
        try:
            answer = await self._transfers().put(path, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise self._unavailable(error) from None
        if not answer.is_success:
            raise problem_of(answer.status_code, answer.content)
        return msgspec.json.decode(answer.content, type=ObjectLink)

    async def leave(self, worker: str) -> None:
        await self._send("DELETE", f"/v1/workers/{worker}", b"", {})

    async def close(self) -> None:
        await self._calls.close()
        if self._files is not None:
            await self._files.aclose()

    def _transfers(self) -> httpx2.AsyncClient:
        """The client for files, made when the first one comes."""
        if self._files is None:
            timeout = httpx2.Timeout(TRANSFER_SECONDS, connect=CONNECT_SECONDS)
            self._files = httpx2.AsyncClient(base_url=self._url, timeout=timeout, trust_env=False)
        return self._files

    def _path(self, rest: str) -> str:
        return f"/v1/workers/{self._worker}/{rest}"

    async def _post(self, path: str, request: msgspec.Struct, answer: type[T], seconds: float = ANSWER_SECONDS) -> T:
        raw = await self._send("POST", path, self._encoder.encode(request), JSON, seconds)
        try:
            return msgspec.json.decode(raw, type=answer)
        except msgspec.MsgspecError as error:
            raise ServerUnavailable(f"{self._url} gave an answer that cannot be read: {error}") from None

    async def _send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float = ANSWER_SECONDS
    ) -> bytes:
        try:
            answer = await self._calls.call(method, path, body, headers, seconds)
        except Broken as error:
            raise self._unavailable(error) from None
        if not 200 <= answer.status < 300:
            raise problem_of(answer.status, answer.body)
        return answer.body

    def _unavailable(self, error: Exception) -> ServerUnavailable:
        return ServerUnavailable(f"no answer from {self._url}: {str(error) or type(error).__name__}")


def problem_of(status: int, body: bytes) -> PenstockError:
    """The error that an answer stands for. A server error without a problem in it may pass; a refusal will not."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        kind: type[PenstockError] = ServerUnavailable if status >= 500 else Refused
        return kind(f"the server answered {status}")
    fallback = ServerUnavailable if status >= 500 else Refused
    return BY_CODE.get(problem.code, fallback)(problem.detail or problem.title)
