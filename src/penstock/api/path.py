"""The variable parts of paths: what each may hold. Routing takes any text; this refuses what cannot be meant."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.model.errors import Invalid
from penstock.model.keys import KeyIdText
from penstock.model.names import Name, whole
from penstock.model.shards import ShardNumber

JOB_ID = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
is_job_id = re.compile(JOB_ID).fullmatch

KINDS: Mapping[str, Any] = {
    "job": Annotated[str, whole(JOB_ID, max_length=36)],
    "queue": Name,
    "type": Name,
    "worker": Name,
    "schedule": Name,
    "scheduler": Name,
    "fleet": Name,
    "key": KeyIdText,
    # Of a file that is looked for: one that cannot exist is as unknown as any other.
    "name": Annotated[str, Meta(min_length=1, max_length=255)],
    "fence": Annotated[int, Meta(ge=1, le=2**53)],
    "shard": ShardNumber,
    "number": Annotated[int, Meta(ge=0, le=9999)],
}


def read_part(name: str, text: str) -> Any:
    """A part as its kind; Invalid names it."""
    try:
        return msgspec.convert(text, KINDS[name], strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"path: {name}: {error}") from None
