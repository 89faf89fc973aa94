"""Files: uploads that become inputs, and inputs and outputs to download."""

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

from penstock.api.exchange import BYTES, Call, Reply, json_reply
from penstock.api.operation import Answer, Digest, Header, operation
from penstock.model.errors import CorruptObject, Invalid
from penstock.model.job import FileLink
from penstock.model.wire import Upload

DIGEST_HEADER = "Digest-SHA256"
FILE = Answer("The file.", None, ("*/*",), ("Content-Disposition", "ETag", "X-Content-Type-Options"))

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_WORD = r"[A-Za-z0-9!#$&^_.+-]{1,127}"
_CONTENT_TYPE = re.compile(rf"{_WORD}/{_WORD}( *; *[\x20-\x7e]*)?")
_UNSAFE_IN_QUOTES = re.compile(r"[^A-Za-z0-9._-]")


@operation(
    "POST /v1/uploads",
    {201: Answer("The upload; name its id in a job's `inputs`.", Upload)},
    takes_bytes=True,
    headers=(Header(DIGEST_HEADER, Digest, "Refuse the upload unless its bytes have this SHA-256."),),
    refusals=(413, 422),
)
async def upload(call: Call) -> Reply:
    """Upload a file for a job to come. It is kept for a day unless a job links to it."""
    digest, content_type = sent_digest(call), sent_content_type(call)
    try:
        return json_reply(201, await call.engine.files.upload(call.file(), content_type, digest))
    except CorruptObject:
        raise not_as_announced() from None


@operation("GET /v1/jobs/{job}/inputs/{name}", {200: FILE}, refusals=(404,))
async def download_input(call: Call) -> Reply:
    """Download an input file of a job."""
    return _attachment(*await call.engine.files.open_input(call.job(), call.path("name")))


@operation("GET /v1/jobs/{job}/outputs/{name}", {200: FILE}, refusals=(404,))
async def download_output(call: Call) -> Reply:
    """Download an output file of a job. There is none before the attempt that wrote it was settled."""
    return _attachment(*await call.engine.files.open_output(call.job(), call.path("name")))


def sent_digest(call: Call) -> str | None:
    """The announced SHA-256, in lower case."""
    digest = call.header(DIGEST_HEADER.lower().encode())
    if digest is not None and _DIGEST.fullmatch(digest) is None:
        raise Invalid(f"header {DIGEST_HEADER}: expected a SHA-256 as 64 hexadecimal digits")
    return None if digest is None else digest.lower()


def sent_content_type(call: Call) -> str:
    """What the file says it is; kept to be given back, so only what is safe in a header."""
    content_type = call.header(b"content-type") or BYTES
    if len(content_type) > 255 or _CONTENT_TYPE.fullmatch(content_type) is None:
        raise Invalid("header Content-Type: expected a media type such as text/csv")
    return content_type


def not_as_announced() -> Invalid:
    """What a digest that does not fit is called where the client sent both: its mistake, not our corruption."""
    return Invalid(f"header {DIGEST_HEADER}: the body has another SHA-256; nothing was kept")


def _attachment(file: FileLink, body: AsyncIterator[bytes]) -> Reply:
    """A download that no browser shows as a page of ours."""
    headers = (
        (b"content-length", b"%d" % file.object.size),
        (b"content-disposition", _disposition(file.name).encode("ascii")),
        (b"etag", f'"{file.object.digest}"'.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
    )
    return Reply(200, body, file.object.content_type, headers)


def _disposition(name: str) -> str:
    """The name twice: as plain ASCII that cannot end its quotes, and exactly, as RFC 6266 has it."""
    plain = _UNSAFE_IN_QUOTES.sub("_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


OPERATIONS = (upload, download_input, download_output)
