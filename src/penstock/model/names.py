"""The rules for names and text that users give: the same in the API, the SDK, the CLI and the settings."""

import re
from typing import Annotated

from msgspec import Meta

from penstock.model.errors import Invalid


def whole(pattern: str, *, max_length: int, description: str | None = None) -> Meta:
    """The constraint of text that matches a pattern from its first to its last character.

    Written with `\\Z`: a pattern that ends in `$` would accept a line end after it.
    """
    return Meta(pattern=rf"^{pattern}\Z", max_length=max_length, description=description)


NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._:-]*"
Name = Annotated[str, whole(NAME_PATTERN, max_length=128)]
"""Of a job type, queue, schedule, worker, fleet or API key."""

CONTROL = r"\x00-\x1f\x7f-\x9f"
"""Control characters, within the brackets of a pattern: they would break lists and logs, and
PostgreSQL cannot store the first."""

Tag = Annotated[str, whole(f"[^{CONTROL}]+", max_length=128)]
Reason = Annotated[str, whole(f"[^{CONTROL}]+", max_length=500)]
"""Why a tick gave no job."""

FileName = Annotated[str, whole(rf"[^{CONTROL}/\\]+", max_length=255)]
"""A plain file name; `check_file_name` has the rest of the rule."""

FILE_NAME_BYTES = 255
"""The longest name that file systems take."""

MEMBER = "PENSTOCK_MEMBER"
"""The variable in a worker's environment that gives it the name under which it joins."""

_controls = re.compile(rf"[{CONTROL}\ud800-\udfff]")
_file_name = re.compile(rf"[^{CONTROL}\ud800-\udfff/\\]+")


def is_name(text: str) -> bool:
    """Whether text is a Name, apart from its length."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def check_file_name(name: str) -> None:
    """Raise Invalid for a name that no file can have, or that could be mistaken for a path."""
    if _file_name.fullmatch(name) is None or name in {".", ".."}:
        raise Invalid(f"{name!r} cannot name a file: use a plain name, without slashes and control characters")
    if len(name.encode()) > FILE_NAME_BYTES:
        raise Invalid(f"{name[:80]!r}… cannot name a file: it has more than {FILE_NAME_BYTES} bytes")


def reason_of(text: str) -> str:
    """Text as a Reason: control characters are replaced, and what is too long is cut."""
    return _controls.sub("\ufffd", text)[:500]
