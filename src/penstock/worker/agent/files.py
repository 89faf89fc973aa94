"""The scratch folder of an attempt: inputs are downloaded into it, outputs uploaded from it."""

import asyncio
import hashlib
import mimetypes
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from penstock.model.errors import CorruptObject, Refused, Unavailable
from penstock.model.job import Claim, ErrorCode, FileLink, JobError
from penstock.model.names import check_file_name
from penstock.model.ports import WorkerApi
from penstock.model.wire.jobs import is_content_type
from penstock.worker.agent.attempt import Attempt, attempt_error
from penstock.worker.agent.outage import Backoff
from penstock.worker.http_api import FileBody

DEFAULT_TYPE = "application/octet-stream"
FETCH_TRIES = 8
"""How often an input is requested, over some seconds, before its attempt fails."""


class FileTrouble(Exception):
    """An input cannot be read or an output cannot be stored; the attempt fails with `error`."""

    def __init__(self, error: JobError) -> None:
        super().__init__(error.message)
        self.error = error


async def fetch_inputs(api: WorkerApi, attempt: Attempt, backoff: Backoff) -> dict[str, str]:
    """Download every input into the scratch folder; their paths by name. FileTrouble if one cannot be read intact."""
    folder = Path(attempt.folder, "inputs")
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True)
    paths = {}
    for file in attempt.claim.inputs:
        path = folder / file.name
        await _fetch(api, attempt.claim, file, path, backoff)
        paths[file.name] = str(path)
    return paths


async def _fetch(api: WorkerApi, claim: Claim, file: FileLink, path: Path, backoff: Backoff) -> None:
    for left in reversed(range(FETCH_TRIES)):
        try:
            check_file_name(file.name)
            with path.open("xb") as target:
                async for chunk in api.read_input(claim.job, file):
                    await asyncio.to_thread(target.write, chunk)
        except CorruptObject as error:
            raise _no_input(claim, ErrorCode.CORRUPT_INPUT, file, error) from None
        except Unavailable as error:
            if not left:
                raise _no_input(claim, ErrorCode.INPUT_UNAVAILABLE, file, error) from None
            await asyncio.to_thread(path.unlink)
            await backoff.wait(error)
        except (Refused, OSError) as error:
            raise _no_input(claim, ErrorCode.INPUT_UNAVAILABLE, file, error) from None
        else:
            backoff.over()
            return


def _no_input(claim: Claim, code: ErrorCode, file: FileLink, error: Exception) -> FileTrouble:
    return FileTrouble(attempt_error(claim, code, f"input {file.name!r}: {error}"))


async def store_outputs(
    api: WorkerApi, attempt: Attempt, content_types: Mapping[str, str], backoff: Backoff
) -> tuple[FileLink, ...]:
    """Upload every file of the outputs folder, by the order of names. FileTrouble for what cannot be an output."""
    links = []
    paths = await asyncio.to_thread(lambda: sorted(Path(attempt.folder, "outputs").iterdir()))
    for path in paths:
        if not _is_text(path.name):
            raise _no_output(attempt.claim, path, "its name is not UTF-8")
    for number, path in enumerate(paths):
        content_type = content_types.get(path.name) or mimetypes.guess_type(path.name)[0] or DEFAULT_TYPE
        if not is_content_type(content_type):
            raise _no_output(attempt.claim, path, f"{content_type!r} is not a content type")
        links.append(await _store(api, attempt, number, path, content_type, backoff))
    return tuple(links)


async def _store(
    api: WorkerApi, attempt: Attempt, number: int, path: Path, content_type: str, backoff: Backoff
) -> FileLink:
    """Try until the output is stored; the watchdog stops an attempt that loses its lease meanwhile."""
    digest = await asyncio.to_thread(_digest, attempt.claim, path)
    while True:
        try:
            link = await api.write_output(attempt.lease, number, FileBody(path), content_type, digest)
        except Unavailable as error:
            await backoff.wait(error)
        except Refused as error:
            raise _no_output(attempt.claim, path, str(error)) from None
        else:
            backoff.over()
            return FileLink(path.name, link)


def _is_text(name: str) -> bool:
    """Whether a file name is valid text. Python shows bytes that are not as surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _digest(claim: Claim, path: Path) -> str:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise _no_output(claim, path, "it is not a plain file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _no_output(claim: Claim, path: Path, why: str) -> FileTrouble:
    return FileTrouble(attempt_error(claim, ErrorCode.INVALID_OUTPUT, f"output {path.name!r}: {why}"))


def remove(folder: str) -> None:
    """Remove a scratch folder if it exists."""
    shutil.rmtree(folder, ignore_errors=True)
