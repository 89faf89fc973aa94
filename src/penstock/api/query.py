"""Reading the query: declared parameters only, each at most once."""

from typing import NoReturn, TypeVar
from urllib.parse import parse_qsl

import msgspec

from penstock.model.errors import Invalid

T = TypeVar("T")

_MOST = 32


def read_query(raw: bytes, kind: type[T]) -> T:
    """The parameters as a struct; Invalid names the one that is unknown, doubled or not acceptable."""
    if not raw:
        return kind()
    try:
        return msgspec.convert(_parameters(raw), kind, strict=False)
    except msgspec.ValidationError as error:
        words = str(error).replace("Object contains unknown field", "there is no parameter").replace("`$.", "`")
        raise Invalid(f"query: {words}") from None


def refuse_query(raw: bytes) -> NoReturn:
    """For an operation that has no parameters."""
    names = ", ".join(_parameters(raw)) or raw.decode("latin-1")
    raise Invalid(f"query: this takes no parameters, but got {names}")


def _parameters(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST)
    except ValueError:
        raise Invalid(f"query: not URL-encoded UTF-8 of at most {_MOST} parameters") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise Invalid(f"query: {next(name for name in names if names.count(name) > 1)} is given more than once")
    return found
