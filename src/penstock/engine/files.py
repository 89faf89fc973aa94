"""Files and large values: the keys of their objects, and when each becomes visible.

Keys are made here and nowhere else:

    uploads/<upload>                      an input that no job links to yet
    jobs/<job>/params                     params too large for the row
    jobs/<job>/inputs/<number>            an input, copied from its upload
    jobs/<job>/<fence>/result             a result too large for the row
    jobs/<job>/<fence>/outputs/<number>   an output; seen only when the settle under that fence is accepted
"""

import random
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence

from penstock.config import Settings
from penstock.model.clock import Clock, seconds, to_millis
from penstock.model.errors import Conflict, Invalid, LeaseLost, NotFound, TooLarge
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import FileLink, Job, Lease, ObjectLink
from penstock.model.lifecycle import State
from penstock.model.names import check_file_name
from penstock.model.wire.jobs import DirectUpload, Upload, UploadRequest
from penstock.objects import ObjectStore
from penstock.store import Store
from penstock.store.answers import require

JSON = "application/json"


def job_prefix(job: JobId) -> str:
    """The prefix of all objects of one job."""
    return f"jobs/{job}"


def output_key(job: JobId, fence: int, number: int) -> str:
    return f"{job_prefix(job)}/{fence}/outputs/{number}"


class Files:
    """Uploads, inputs, outputs, and values too large for a row."""

    def __init__(
        self, store: Store, objects: ObjectStore, settings: Settings, clock: Clock, rng: random.Random
    ) -> None:
        self._store = store
        self._objects = objects
        self._limits = settings.limits
        self._direct = settings.objects.direct
        self._lifetime = seconds(settings.objects.link_seconds)
        self._clock = clock
        self._rng = rng

    async def upload(self, body: AsyncIterator[bytes], content_type: str, digest: str | None = None) -> Upload:
        """Store a file until a job links to it as an input, or the pruner deletes it."""
        name = self._new_upload()
        link = await self._objects.put(f"uploads/{name}", self._cap(body), content_type, digest)
        return Upload(name, link.size, link.digest, link.content_type)

    async def announce_upload(self, announced: UploadRequest) -> DirectUpload:
        """Let a client send a file to the object store itself; it counts once all announced bytes are there."""
        name = self._new_upload()
        return await self._offer(name, f"uploads/{name}", announced)

    async def adopt(self, job: JobId, inputs: Mapping[str, str]) -> tuple[FileLink, ...]:
        """Link uploads to a job as its inputs: `inputs` maps file names to upload ids."""
        return tuple([await self._adopt_one(job, number, *named) for number, named in enumerate(inputs.items())])

    async def _adopt_one(self, job: JobId, number: int, name: str, upload: str) -> FileLink:
        check_file_name(name)
        source = f"uploads/{_upload_id(upload)}"
        try:
            return FileLink(name, await self._objects.copy(source, f"{job_prefix(job)}/inputs/{number}"))
        except NotFound:
            raise Invalid(
                f"input {name!r}: there is no upload {upload!r}, or fewer or more bytes of it than were announced; "
                f"send the file to /v1/uploads first"
            ) from None

    async def inherit(self, job: JobId, inputs: Sequence[FileLink]) -> tuple[FileLink, ...]:
        """Give a job its own copy of another job's inputs."""
        prefix = job_prefix(job)
        return tuple(
            [
                FileLink(file.name, await self._objects.copy(file.object.key, f"{prefix}/inputs/{number}"))
                for number, file in enumerate(inputs)
            ]
        )

    async def keep_value(self, key: str, value: bytes) -> ObjectLink:
        """Store JSON under the key of one attempt or one job; idempotent."""
        try:
            return await self._objects.put(key, _read_whole(value), JSON)
        except Conflict:
            return await self._require(key)

    async def read_value(self, link: ObjectLink) -> bytes:
        return b"".join([chunk async for chunk in self._objects.read(link)])

    async def open_input(self, job: JobId, name: str) -> tuple[FileLink, AsyncIterator[bytes]]:
        found = await self._job(job)
        return self._open(name, found.inputs, f"job {job} has no input")

    async def open_output(self, job: JobId, name: str) -> tuple[FileLink, AsyncIterator[bytes]]:
        found = await self._job(job)
        return self._open(name, found.outputs, f"job {job} ({found.state}) has no output")

    async def write_output(
        self, lease: Lease, number: int, body: AsyncIterator[bytes], content_type: str, digest: str
    ) -> ObjectLink:
        """Store an output of the attempt that holds the lease. LeaseLost if it no longer does."""
        await self._check_lease(lease)
        key = output_key(lease.job, lease.fence, number)
        try:
            return await self._objects.put(key, self._cap(body), content_type, digest)
        except Conflict:
            return await self._check_same(key, digest)

    async def announce_output(self, lease: Lease, number: int, announced: UploadRequest) -> DirectUpload:
        """Let a worker send an output to the object store itself. LeaseLost if it no longer holds the lease."""
        await self._check_lease(lease)
        key = output_key(lease.job, lease.fence, number)
        return await self._offer(key, key, announced)

    async def direct_url(self, file: FileLink) -> str | None:
        """A temporary URL of the object store for this file; None if it must be read through the server."""
        return await self._objects.download_url(file.object, self._lifetime) if self._direct else None

    async def check_outputs(self, lease: Lease, outputs: Sequence[FileLink]) -> None:
        """Raise Invalid unless each output was written under this fence and is stored as its link says."""
        for number, file in enumerate(outputs):
            check_file_name(file.name)
            if file.object.key != output_key(lease.job, lease.fence, number):
                raise Invalid(f"output {file.name!r} does not belong to fence {lease.fence} of job {lease.job}")
            if await self._objects.stat(file.object.key) != file.object:
                raise Invalid(f"output {file.name!r} of job {lease.job} is not stored as its link says")

    def _new_upload(self) -> JobId:
        return new_job_id(to_millis(self._clock.now()), ShardId(0), self._rng)

    async def _offer(self, name: str, key: str, announced: UploadRequest) -> DirectUpload:
        if announced.size > self._limits.file_bytes:
            raise self._too_large()
        link = ObjectLink(key, announced.size, announced.digest.lower(), announced.content_type)
        expires_at = self._clock.now() + self._lifetime
        url = await self._objects.upload_url(link, self._lifetime) if self._direct else None
        if url is None:
            return DirectUpload()
        return DirectUpload(name, url, "PUT", {"Content-Type": link.content_type}, expires_at)

    async def _check_lease(self, lease: Lease) -> None:
        job = await self._job(lease.job)
        if job.state is not State.RUNNING or job.fence != lease.fence:
            raise LeaseLost(f"job {lease.job} is {job.state} with fence {job.fence}, not running with {lease.fence}")

    async def _job(self, job: JobId) -> Job:
        (found,) = require(await self._store.get([job]))
        if found is None:
            raise NotFound(f"there is no job {job}")
        return found

    def _open(self, name: str, files: Sequence[FileLink], missing: str) -> tuple[FileLink, AsyncIterator[bytes]]:
        for file in files:
            if file.name == name:
                return file, self._objects.read(file.object)
        known = ", ".join(file.name for file in files) or "none"
        raise NotFound(f"{missing} named {name!r}; it has: {known}")

    async def _require(self, key: str) -> ObjectLink:
        if (link := await self._objects.stat(key)) is None:
            raise NotFound(f"object {key} is gone")
        return link

    async def _check_same(self, key: str, digest: str) -> ObjectLink:
        link = await self._require(key)
        if link.digest != digest:
            raise Conflict(f"object {key} exists with other content")
        return link

    async def _cap(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in body:
            size += len(chunk)
            if size > self._limits.file_bytes:
                raise self._too_large()
            yield chunk

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a file may have at most {self._limits.file_bytes:,} bytes (limits.file_bytes)")


def _upload_id(text: str) -> str:
    """The canonical form of an upload id, so that it cannot name any other key."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise Invalid(f"{text!r} is not the id of an upload; POST the file to /v1/uploads first") from None


async def _read_whole(value: bytes) -> AsyncIterator[bytes]:
    yield value
