"""The HTTP client of a worker: `WorkerApi` for one that holds only a server's URL and a key."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from msgspec.structs import replace

from penstock.client.calls import Reply
from penstock.client.direct import Direct
from penstock.client.http import TRANSFER_SECONDS, UNREADABLE, TransferBroken, Transfers
from penstock.http1 import ANSWER_SECONDS, CONNECT_SECONDS, JSON, ServerConnection, error_of, no_answer
from penstock.model.clock import SystemClock
from penstock.model.errors import CorruptObject, PenstockError, ServerUnavailable
from penstock.model.ids import JobId
from penstock.model.job import Claim, FileLink, Lease, ObjectLink
from penstock.model.keys import authorization
from penstock.model.wire.jobs import (
    ClaimRequest,
    ClaimResponse,
    DirectUpload,
    JoinRequest,
    JoinResponse,
    LogEntry,
    LogRequest,
    Outcome,
    Refusal,
    ReleaseRequest,
    RenewRequest,
    RenewResponse,
    SettleRequest,
    SettleResponse,
    UploadRequest,
)
from penstock.model.wire.schedules import OnConflict, ScheduleRequest
from penstock.model.workers import JobType, Worker, WorkRequest

CHUNK_BYTES = 256 * 1024


class FileBody:
    """The bytes of a file, readable once, and their number."""

    def __init__(self, path: Path) -> None:
        self.size = path.stat().st_size
        self._chunks = _chunks(path)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk


GIVE_BACK_SECONDS = 3.0

T = TypeVar("T")


class HttpWorkerApi:
    """`WorkerApi` over one server's `/v1/workers`. No answer in time is ServerUnavailable."""

    def __init__(self, url: str, key: str = "") -> None:
        self._worker = ""
        self._url = url
        self._authorization = authorization(key)
        self._encoder = msgspec.json.Encoder()
        self._server = ServerConnection(url, key)
        self._files: httpx2.AsyncClient | None = None
        self._past = Transfers()
        self._direct = Direct(SystemClock())

    async def join(self, worker: Worker, types: Sequence[JobType]) -> JoinResponse:
        self._worker = worker.id
        return await self._post("/v1/workers", JoinRequest(worker, tuple(types)), JoinResponse)

    async def declare(self, schedules: Sequence[ScheduleRequest]) -> None:
        for schedule in schedules:
            request = replace(schedule, on_conflict=OnConflict.REPLACE)
            await self._server.send("POST", "/v1/schedules", self._encoder.encode(request), JSON)

    async def claim(self, worker: str, wanted: WorkRequest, limit: int, wait: timedelta) -> list[Claim]:
        queues = tuple(sorted(wanted.queues)) if wanted.queues is not None else None
        others = tuple(sorted(wanted.except_queues))
        declined = tuple(sorted(wanted.only_given_back))
        request = ClaimRequest(tuple(sorted(wanted.types)), limit, wait.total_seconds(), queues, others, declined)
        hang_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(self._ask_for_jobs(request, wait.total_seconds() + ANSWER_SECONDS, hang_up))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            hang_up.set_result(None)
            await self._give_back(asking)
            raise

    async def _ask_for_jobs(
        self, request: ClaimRequest, seconds: float, hang_up: "asyncio.Future[None]"
    ) -> list[Claim]:
        body = self._encoder.encode(request)
        answer = await self._server.send("POST", self._path("claim"), body, JSON, seconds, hang_up)
        return list(self._read(answer, ClaimResponse).claims)

    async def _give_back(self, asking: "asyncio.Future[list[Claim]]") -> None:
        """Release the jobs of an answer that was on its way: the server counts them as claimed by this worker."""
        with suppress(PenstockError, TimeoutError):
            async with asyncio.timeout(GIVE_BACK_SECONDS):
                if claims := await asking:
                    await self.release([Lease(claim.job, claim.fence) for claim in claims])

    async def renew(self, worker: Worker, leases: Sequence[Lease]) -> RenewResponse:
        answer = await self._post(self._path("renew"), RenewRequest(worker, tuple(leases)), RenewResponse)
        if len(answer.renewals) != len(leases):
            raise ServerUnavailable(f"{self._url} answered for {len(answer.renewals)} of {len(leases)} leases")
        return answer

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refusal]:
        answer = await self._post(self._path("settle"), SettleRequest(tuple(outcomes)), SettleResponse)
        return list(answer.refused)

    async def release(self, leases: Sequence[Lease], *, suspects: bool = False) -> list[Refusal]:
        answer = await self._post(self._path("release"), ReleaseRequest(tuple(leases), suspects), SettleResponse)
        return list(answer.refused)

    async def log(self, entries: Sequence[LogEntry]) -> list[Refusal]:
        answer = await self._post(self._path("log"), LogRequest(tuple(entries)), SettleResponse)
        return list(answer.refused)

    async def read_input(self, job: JobId, file: FileLink) -> AsyncIterator[bytes]:
        path = f"/v1/jobs/{job}/inputs/{quote(file.name, safe='')}"
        digest, size = hashlib.sha256(), 0
        async for chunk in self._input(path, file.object.size):
            digest.update(chunk)
            size += len(chunk)
            yield chunk
        if size != file.object.size:
            # Not a corrupt object: a proxy answered with a page of its own, or the transfer was cut short.
            self._direct.of_no_use()
            raise ServerUnavailable(f"{self._url} gave {size} bytes for {file.name!r}, which has {file.object.size}")
        if digest.hexdigest() != file.object.digest:
            raise CorruptObject(f"what was read of {file.name!r} does not match its digest")

    async def _input(self, path: str, size: int) -> AsyncIterator[bytes]:
        """Read from the object store directly if it can be reached; the rest through the server."""
        got = 0
        if self._direct.worth(size) and (url := await self._find_redirect(path)) is not None:
            try:
                async for chunk in self._past.fetch(url):
                    got += len(chunk)
                    yield chunk
            except TransferBroken:
                self._direct.of_no_use()
            else:
                return
        async for chunk in self._through_server(path):
            if fresh := chunk[got:]:
                yield fresh
            got = max(0, got - len(chunk))

    async def _find_redirect(self, path: str) -> str | None:
        """The object store's URL of a file; None if the server offers no direct transfers."""
        try:
            async with self._transfers().stream("GET", path, params={"direct": "true"}) as answer:
                if answer.status_code == 307:
                    return answer.headers.get("location")
                if answer.is_success:
                    self._direct.of_no_use()
        except httpx2.HTTPError as error:
            raise no_answer(self._url, error) from None
        return None

    async def _through_server(self, path: str) -> AsyncIterator[bytes]:
        try:
            async with self._transfers().stream("GET", path) as answer:
                if not answer.is_success:
                    raise error_of(Reply(answer.status_code, await answer.aread(), answer.headers), self._url)
                async for chunk in answer.aiter_bytes():
                    yield chunk
        except httpx2.HTTPError as error:
            raise no_answer(self._url, error) from None

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        path = self._path(f"outputs/{lease.job}/{lease.fence}/{number}")
        if isinstance(body, FileBody) and self._direct.worth(body.size):
            link = await self._write_past(f"{path}/direct", body, UploadRequest(digest, body.size, content_type))
            if link is not None:
                return link
        headers = {"content-type": content_type, "digest-sha256": digest}
        try:
            answer = await self._transfers().put(path, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise no_answer(self._url, error) from None
        if not answer.is_success:
            raise error_of(Reply(answer.status_code, answer.content, answer.headers), self._url)
        return self._read(answer.content, ObjectLink)

    async def _write_past(self, path: str, body: FileBody, announced: UploadRequest) -> ObjectLink | None:
        """Upload to the object store directly; None, with the body unread, if the server offers no direct transfers."""
        offer = await self._post(path, announced, DirectUpload)
        if offer.id is None or offer.url is None:
            self._direct.of_no_use()
            return None
        try:
            await self._past.send(offer.method or "PUT", offer.url, offer.headers or {}, body, body.size)
        except TransferBroken as error:
            # The body has been read: the caller tries again with a new one, which goes through the server.
            self._direct.of_no_use()
            raise ServerUnavailable(f"the object store did not take an output: {error}") from None
        return ObjectLink(offer.id, announced.size, announced.digest, announced.content_type)

    async def leave(self, worker: str) -> None:
        await self._server.send("DELETE", f"/v1/workers/{worker}", b"", {})

    async def close(self) -> None:
        await self._server.close()
        if self._files is not None:
            await self._files.aclose()
        await self._past.close()

    def _transfers(self) -> httpx2.AsyncClient:
        """The client for files, created with the first one."""
        if self._files is None:
            timeout = httpx2.Timeout(TRANSFER_SECONDS, connect=CONNECT_SECONDS)
            self._files = httpx2.AsyncClient(
                base_url=self._url, headers=self._authorization, timeout=timeout, trust_env=False
            )
        return self._files

    def _path(self, rest: str) -> str:
        return f"/v1/workers/{self._worker}/{rest}"

    async def _post(self, path: str, request: msgspec.Struct, answer: type[T], seconds: float = ANSWER_SECONDS) -> T:
        return self._read(await self._server.post(path, self._encoder.encode(request), seconds), answer)

    def _read(self, raw: bytes, answer: type[T]) -> T:
        try:
            return msgspec.json.decode(raw, type=answer)
        except UNREADABLE as error:
            raise ServerUnavailable(f"{self._url} gave an answer that cannot be read: {error}") from None
