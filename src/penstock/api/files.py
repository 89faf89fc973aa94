"""Files: uploads that become inputs, and inputs and outputs to download."""

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

from msgspec import Struct

from penstock.api.access import refuse_foreign_jobs
from penstock.api.operation import Answer, Header, operation
from penstock.api.request import BYTES, ApiReply, ApiRequest, json_reply
from penstock.model.errors import CorruptObject, Invalid
from penstock.model.job import FileLink, Lease
from penstock.model.keys import KeyScope
from penstock.model.wire.jobs import DirectUpload, Sha256, Upload, UploadRequest, is_content_type

DIGEST_HEADER = "Digest-SHA256"
FILE = Answer("The file.", None, ("*/*",), ("Content-Disposition", "ETag", "X-Content-Type-Options"))
ELSEWHERE = Answer("Only with `direct`: where the object store itself gives the file.", None, (), ("Location",))
ANNOUNCED = {
    201: Answer("Where to send the file.", DirectUpload),
    200: Answer("There is no such way here: every field is null. Send the file to the server.", DirectUpload),
}

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_UNSAFE_IN_QUOTES = re.compile(r"[^A-Za-z0-9._-]")


class DownloadQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`direct` answers with a redirect to the object store where there is one that can give the file itself."""

    direct: bool = False


@operation(
    "POST /v1/uploads",
    {201: Answer("The upload; name its id in a job's `inputs`.", Upload)},
    takes_bytes=True,
    headers=(Header(DIGEST_HEADER, Sha256, "Refuse the upload unless its bytes have this SHA-256."),),
    refusals=(413, 422),
)
async def upload(call: ApiRequest) -> ApiReply:
    """Upload a file for a job to come. It is kept for a day unless a job links to it."""
    digest, content_type = sent_digest(call), sent_content_type(call)
    try:
        return json_reply(201, await call.engine.files.upload(call.file(), content_type, digest))
    except CorruptObject:
        raise digest_mismatch() from None


@operation("POST /v1/uploads/direct", ANNOUNCED, body=UploadRequest)
async def announce_upload(call: ApiRequest) -> ApiReply:
    """Ask where to send a file past the server. It is an upload once as many bytes are there as announced."""
    return _offer_reply(await call.engine.files.announce_upload(await call.json(UploadRequest)))


@operation(
    "POST /v1/workers/{worker}/outputs/{job}/{fence}/{number}/direct",
    ANNOUNCED,
    body=UploadRequest,
    refusals=(404, 409),
)
async def announce_output(call: ApiRequest) -> ApiReply:
    """Ask where to send an attempt's output past the server. Nobody sees it before its settle is accepted."""
    call.path("worker")
    lease, number = Lease(call.job(), call.path("fence")), call.path("number")
    await refuse_foreign_jobs(call, (lease.job,))
    return _offer_reply(await call.engine.files.announce_output(lease, number, await call.json(UploadRequest)))


@operation(
    "GET /v1/jobs/{job}/inputs/{name}",
    {200: FILE, 307: ELSEWHERE},
    query=DownloadQuery,
    refusals=(404,),
    scopes=(KeyScope.JOBS_READ, KeyScope.WORKER),
)
async def download_input(call: ApiRequest) -> ApiReply:
    """Download an input file of a job."""
    await refuse_foreign_jobs(call, (call.job(),), unless=KeyScope.JOBS_READ)
    return await _download(call, *await call.engine.files.open_input(call.job(), call.path("name")))


@operation("GET /v1/jobs/{job}/outputs/{name}", {200: FILE, 307: ELSEWHERE}, query=DownloadQuery, refusals=(404,))
async def download_output(call: ApiRequest) -> ApiReply:
    """Download an output file of a job. There is none before the attempt that wrote it was settled."""
    return await _download(call, *await call.engine.files.open_output(call.job(), call.path("name")))


def sent_digest(call: ApiRequest) -> str | None:
    """The announced SHA-256, in lower case."""
    digest = call.header(DIGEST_HEADER.lower().encode())
    if digest is not None and _DIGEST.fullmatch(digest) is None:
        raise Invalid(f"header {DIGEST_HEADER}: expected a SHA-256 as 64 hexadecimal digits")
    return None if digest is None else digest.lower()


def sent_content_type(call: ApiRequest) -> str:
    """What the file says it is; kept to be given back, so only what is safe in a header."""
    content_type = call.header(b"content-type") or BYTES
    if not is_content_type(content_type):
        raise Invalid("header Content-Type: expected a media type such as text/csv")
    return content_type


def _offer_reply(offer: DirectUpload) -> ApiReply:
    return json_reply(200 if offer.url is None else 201, offer)


def digest_mismatch() -> Invalid:
    """The error for a body whose digest differs from the one sent with it: a mistake of the client, not corruption."""
    return Invalid(f"header {DIGEST_HEADER}: the body has another SHA-256; nothing was kept")


async def _download(call: ApiRequest, file: FileLink, body: AsyncIterator[bytes]) -> ApiReply:
    # A URL is signed for GET alone.
    if call.query(DownloadQuery).direct and call.scope["method"] == "GET":
        url = await call.engine.files.direct_url(file)
        if url is not None:
            return ApiReply(307, headers=((b"location", url.encode("ascii")), (b"cache-control", b"no-store")))
    return _attachment(file, body)


def _attachment(file: FileLink, body: AsyncIterator[bytes]) -> ApiReply:
    """A download that no browser shows as a page of ours."""
    headers = (
        (b"content-length", b"%d" % file.object.size),
        (b"content-disposition", _disposition(file.name).encode("ascii")),
        (b"etag", f'"{file.object.digest}"'.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
    )
    return ApiReply(200, body, file.object.content_type, headers)


def _disposition(name: str) -> str:
    """The name twice: as plain ASCII that cannot end its quotes, and exactly, as RFC 6266 has it."""
    plain = _UNSAFE_IN_QUOTES.sub("_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


OPERATIONS = (upload, announce_upload, announce_output, download_input, download_output)
