"""The built files of the page, as they are sent: read once, and again after `make page`."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

BUILT = Path(__file__).parent / "built"

Headers = tuple[tuple[bytes, bytes], ...]

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'none'",
        "form-action 'self'",
        "base-uri 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
SAFE: Headers = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), usb=()"),
)
"""What a browser must not do with anything of the page."""

# The name of a file changes with its content.
_FOR_GOOD = (b"cache-control", b"public, max-age=31536000, immutable")
_ASK_AGAIN = (b"cache-control", b"no-cache")
_VARIES = (b"vary", b"accept-encoding")
_GZIP = (b"content-encoding", b"gzip")
_HTML = (b"content-type", b"text/html; charset=utf-8")
_TEXT = (b"content-type", b"text/plain; charset=utf-8")

_BASE = b'<base href="./">'


class PageAnswer(Struct, frozen=True):
    """A status, headers and a body."""

    status: int
    headers: Headers
    body: bytes


class BuiltManifest(Struct, frozen=True):
    """What the build wrote: a digest of the sources, and the content type of each file."""

    sources: str
    files: dict[str, str]


class BuiltFile(Struct, frozen=True):
    """One file, plain and compressed."""

    content_type: bytes
    plain: bytes
    compressed: bytes

    def answer(self, *, gzip: bool) -> PageAnswer:
        headers = ((b"content-type", self.content_type), _FOR_GOOD, _VARIES, *SAFE)
        if gzip:
            return PageAnswer(200, (*headers, _GZIP), self.compressed)
        return PageAnswer(200, headers, self.plain)


class BuiltPage(Struct, frozen=True):
    """All files by name, and the page that names them."""

    index: bytes
    files: Mapping[str, BuiltFile]

    def answer_index(self, depth: int) -> PageAnswer:
        """The page for an address of so many segments below its root.

        The base is relative, so that the page works below any prefix that a proxy takes off.
        """
        base = b'<base href="%s">' % (b"../" * depth or b"./")
        return PageAnswer(200, (_HTML, _ASK_AGAIN, *SAFE), self.index.replace(_BASE, base))


NOT_BUILT = PageAnswer(
    503,
    (_TEXT, (b"cache-control", b"no-store"), *SAFE),
    b"The page is not built here. In a checkout, `make page` builds it; packages from PyPI have it.\n"
    b"Everything else works: the API is at /v1, and /openapi.json describes it.\n",
)
NO_SUCH_FILE = PageAnswer(
    404,
    (_TEXT, (b"cache-control", b"no-store"), *SAFE),
    b"The page has no such file; load it again, it may have been replaced by a newer one.\n",
)


class BuiltFiles:
    """Reads the built files when they are first asked for, and anew once there are others."""

    def __init__(self, folder: Path = BUILT) -> None:
        self._folder = folder
        self._read_at: int | None = None
        self._page: BuiltPage | None = None

    def read(self) -> BuiltPage | None:
        """None if the page is not built."""
        try:
            built_at = (self._folder / "manifest.json").stat().st_mtime_ns
            if built_at != self._read_at:
                self._page, self._read_at = self._load(), built_at
        except (OSError, msgspec.MsgspecError):
            return None
        return self._page

    def _load(self) -> BuiltPage:
        manifest = msgspec.json.decode((self._folder / "manifest.json").read_bytes(), type=BuiltManifest)
        return BuiltPage(
            (self._folder / "index.html").read_bytes(),
            {
                name: BuiltFile(
                    content_type.encode(),
                    (self._folder / name).read_bytes(),
                    (self._folder / f"{name}.gz").read_bytes(),
                )
                for name, content_type in manifest.files.items()
            },
        )
