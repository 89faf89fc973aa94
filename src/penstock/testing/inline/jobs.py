"""The server of inline mode: jobs in memory, files in a folder, and no time between a submit and its end."""

import hashlib
import random
from collections.abc import AsyncGenerator, Generator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote

import msgspec
from msgspec.structs import replace

from penstock.api.problems import problem_of
from penstock.app import Handler, Penstock
from penstock.client.calls import Call, Reply, StreamBlock
from penstock.engine.job_spec import fingerprint, new_job, same_again
from penstock.engine.worker_api import settle_error
from penstock.model.clock import Clock, to_millis
from penstock.model.errors import Invalid, KeyConflict, NotFound, PenstockError, UnknownType
from penstock.model.ids import JobId, ShardId, new_job_id
from penstock.model.job import FileLink, Job, LogLine, NewJob, ObjectLink
from penstock.model.lifecycle import State
from penstock.model.wire.jobs import (
    BatchAnswer,
    BatchRequest,
    BatchResponse,
    DirectUpload,
    JobItem,
    LogPage,
    SubmitRequest,
    Upload,
    job_item,
)
from penstock.testing.inline.attempt import Unheard, recorded, run_to_end
from penstock.testing.inline.ticks import Tick, submit_of
from penstock.worker.executor.run import End, Run
from penstock.worker.protocol import Errored, Finished, Start

T = TypeVar("T")


class InlineJobs:
    """The jobs of one inline run, oldest first. To the clients it is a server."""

    def __init__(self, app: Penstock, folder: Path, clock: Clock) -> None:
        self._app = app
        self._folder = folder
        self._clock = clock
        self._rng = random.Random()
        self._jobs: dict[JobId, Job] = {}
        self._keys: dict[str, tuple[bytes, JobId]] = {}
        self._logs: dict[JobId, list[LogLine]] = {}
        self._files: dict[str, tuple[Path, ObjectLink]] = {}

    def all(self) -> list[JobItem]:
        return [job_item(job) for job in self._jobs.values()]

    def of(self, type: str) -> list[JobItem]:
        """The jobs of one type."""
        return [job for job in self.all() if job.type == type]

    def tick(self, schedule: str) -> JobItem:
        """Run one tick of a schedule that the app declares, now; its job, ended."""
        declared = self._app.schedules.get(schedule)
        if declared is None:
            known = ", ".join(sorted(self._app.schedules)) or "none"
            raise NotFound(f"the app declares no schedule {schedule!r}; there are: {known}")
        return job_item(self._submit(submit_of(declared), Tick(schedule, self._clock.now())))

    # -- as a transport

    def send(self, call: Call[Any]) -> Reply:
        """Answer as a server would; what it would refuse is raised as it is."""
        answer = self._answer(call)
        sink = call.sink()
        sink.write(answer.read_bytes() if isinstance(answer, Path) else msgspec.json.encode(answer))
        return Reply(200, sink.finish())

    def stream(self, call: Call[Any]) -> Generator[StreamBlock, None, None]:
        raise NotFound(f"inline mode has no streams, and so no {call.path}: a job has ended once it is submitted")

    def close(self) -> None:
        """Nothing to close."""

    def _answer(self, call: Call[Any]) -> object:
        match call.method, [unquote(part) for part in call.path.split("/")[2:]]:
            case "POST", ["jobs"]:
                return job_item(self._submit(_body(call, SubmitRequest)))
            case "POST", ["jobs", "batch"]:
                return self._submit_batch(_body(call, BatchRequest))
            case "POST", ["uploads"]:
                return self._upload(call)
            case "POST", ["uploads", "direct"]:
                return DirectUpload()
            case _, ["jobs", job, *rest]:
                return self._answer_about(self._job(job), call, rest)
        raise NotFound(f"inline mode has no {call.method} {call.path}: it only knows jobs")

    def _answer_about(self, job: Job, call: Call[Any], rest: list[str]) -> object:
        match call.method, rest:
            case "GET", []:
                return job_item(job)
            case "GET", ["logs"]:
                lines = self._logs[job.id]
                return LogPage(tuple(lines[_position(call) :]), len(lines))
            case "GET", ["outputs", name]:
                return next(self._files[file.object.key][0] for file in job.outputs if file.name == name)
            case "POST", ["cancel"]:
                return job_item(job)
            case "POST", ["retry"]:
                return job_item(self._run(same_again(self._new_id(), job), job.inputs))
        raise NotFound(f"inline mode has no {call.method} {call.path}")

    # -- submitting

    def _submit(self, request: SubmitRequest, tick: Tick | None = None) -> Job:
        """The job, ended: inline there is nothing between its submit and its end."""
        inputs = tuple(self._linked(name, upload) for name, upload in request.inputs.items())
        asked = fingerprint(request, inputs)
        if (known := self._known(request.idempotency_key, asked)) is not None:
            return known
        handler = self._handler(request.type)
        new = new_job(self._new_id(), request, handler.declared, self._clock.now())
        if handler.signature is not None:
            handler.signature.decode(bytes(request.params))
        if request.idempotency_key:
            self._keys[request.idempotency_key] = asked, new.id
        if tick is not None:
            new = replace(new, schedule=tick.schedule, tick_at=tick.at)
        return self._run(new, inputs)

    def _known(self, key: str | None, asked: bytes) -> Job | None:
        before, job = self._keys.get(key or "", (b"", None))
        if job is not None and before != asked:
            raise KeyConflict(f"the key {key!r} belongs to job {job}, which asked for something else")
        return None if job is None else self._jobs[job]

    def _submit_batch(self, request: BatchRequest) -> BatchResponse:
        answers = [self._submit_one(index, raw) for index, raw in enumerate(request.jobs)]
        refused = sum(answer.problem is not None for answer in answers)
        return BatchResponse(len(answers) - refused, refused, tuple(answers))

    def _submit_one(self, index: int, raw: msgspec.Raw) -> BatchAnswer:
        try:
            job = self._submit(msgspec.json.decode(raw, type=SubmitRequest))
        except PenstockError as error:
            return BatchAnswer(index, problem=problem_of(error))
        return BatchAnswer(index, job.id, job.state, created=True)

    def _handler(self, type_name: str) -> Handler[..., Any]:
        handler = self._app.handlers.get(type_name)
        if handler is None:
            known = ", ".join(sorted(self._app.handlers))
            raise UnknownType(f"no job type {type_name!r} is declared; there are: {known}")
        if handler.function is None:
            raise Invalid(f"{type_name!r} is a command, which inline mode does not run: test the program by itself")
        return handler

    # -- running

    def _run(self, new: NewJob, inputs: tuple[FileLink, ...]) -> Job:
        job = _row(new, inputs, self._clock)
        while not job.ended:
            begun = replace(job, state=State.RUNNING, attempt=job.attempt + 1, fence=job.fence + 1)
            self._jobs[job.id] = replace(begun, started_at=self._clock.now())
            job = self._attempt(self._jobs[job.id])
            self._jobs[job.id] = job
        return job

    def _attempt(self, job: Job) -> Job:
        start = self._start(job)
        folder = Path(start.folder)
        folder.mkdir(parents=True)
        attempt = Run(start, self._handler(job.type), Unheard())
        with recorded(job.attempt, self._clock, self._logs.setdefault(job.id, [])):
            end = run_to_end(attempt)
        return self._settled(replace(job, progress=attempt.progress or job.progress), end, folder / "outputs")

    def _start(self, job: Job) -> Start:
        inputs = {file.name: str(self._files[file.object.key][0]) for file in job.inputs}
        params = job.params or b"{}"
        return Start(0, job.id, job.type, job.attempt, job.fence, params, str(self._folder), job.tags, inputs)

    def _settled(self, job: Job, end: End, outputs: Path) -> Job:
        now = self._clock.now()
        match end:
            case Finished():
                files = self._kept(job, outputs, end.outputs or {})
                return replace(
                    job, state=State.SUCCEEDED, result=end.result, outputs=files, error=None, completed_at=now
                )
            case Errored():
                settled = settle_error(job, job.fence, end.error, self._rng)
                job = replace(job, state=settled.state, error=settled.error, reason=settled.reason)
                return replace(job, completed_at=now) if job.ended else job
            case _:
                return replace(job, state=State.CANCELLED, completed_at=now)

    # -- files

    def _upload(self, call: Call[Any]) -> Upload:
        assert call.body is not None
        content = call.body if isinstance(call.body, bytes) else call.body.read_bytes()
        name = self._new_id()
        path = self._folder / f"upload-{name}"
        path.write_bytes(content)
        link = self._keep(name, path, call.content_type)
        return Upload(name, link.size, link.digest, link.content_type)

    def _linked(self, name: str, upload: str) -> FileLink:
        if upload not in self._files:
            raise Invalid(f"input {name!r}: there is no upload {upload!r}")
        return FileLink(name, self._files[upload][1])

    def _kept(self, job: Job, folder: Path, content_types: Mapping[str, str]) -> tuple[FileLink, ...]:
        paths = sorted(folder.iterdir()) if folder.exists() else []
        kind = "application/octet-stream"
        return tuple(
            FileLink(path.name, self._keep(f"{job.id}/{path.name}", path, content_types.get(path.name, kind)))
            for path in paths
        )

    def _keep(self, key: str, path: Path, content_type: str) -> ObjectLink:
        content = path.read_bytes()
        link = ObjectLink(key, len(content), hashlib.sha256(content).hexdigest(), content_type)
        self._files[key] = path, link
        return link

    def _job(self, job: str) -> Job:
        found = self._jobs.get(JobId(job))
        if found is None:
            raise NotFound(f"there is no job {job} in this inline run")
        return found

    def _new_id(self) -> JobId:
        return new_job_id(to_millis(self._clock.now()), ShardId(0), self._rng)


class AsyncInline:
    """The same server to an `AsyncClient`."""

    def __init__(self, jobs: InlineJobs) -> None:
        self._jobs = jobs

    async def send(self, call: Call[Any]) -> Reply:
        return self._jobs.send(call)

    async def stream(self, call: Call[Any]) -> AsyncGenerator[StreamBlock, None]:
        for block in self._jobs.stream(call):
            yield block

    async def close(self) -> None:
        """Nothing to close."""


def _row(new: NewJob, inputs: tuple[FileLink, ...], clock: Clock) -> Job:
    """The job as a store would have it: due, and now queued whatever its delay."""
    now = clock.now()
    kept = {name: getattr(new, name) for name in Job.__struct_fields__ if name in NewJob.__struct_fields__}
    due_at = new.due_at or now + (new.delay or timedelta())
    return Job(**kept | {"state": State.QUEUED, "created_at": now, "due_at": due_at, "inputs": inputs})


def _body(call: Call[Any], shape: type[T]) -> T:
    assert isinstance(call.body, bytes)
    return msgspec.json.decode(call.body, type=shape)


def _position(call: Call[Any]) -> int:
    return int(parse_qs(call.query).get("after", ["0"])[0])
