"""The URL of a shard in DynamoDB: `dynamodb://TABLE`, or `dynamodb://TABLE?create=false` for one that others create."""

import re
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from penstock.model.errors import InvalidSetting

_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_TRUE, _FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})


class TableAddress(Struct, frozen=True):
    """A table, and whether a process that opens it may create it."""

    table: str
    create: bool = True

    @classmethod
    def parse(cls, url: str) -> "TableAddress":
        """InvalidSetting for what names no table. Region and credentials are AWS's own settings, not part of it."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        create = options.pop("create", "true")
        if not _NAME.fullmatch(parts.netloc) or parts.path not in {"", "/"}:
            raise InvalidSetting(
                f"store: {url!r} names no table; write dynamodb://TABLE, with 3 to 255 letters, digits or any of _.-"
            )
        if options or create not in _TRUE | _FALSE:
            raise InvalidSetting(f"store: {url!r} has an unknown option; there is create=true or create=false")
        return cls(parts.netloc, create in _TRUE)
