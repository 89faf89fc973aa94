"""JSON Schemas of the bodies, as msgspec writes them, with what it cannot know added."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from penstock.api.path import JOB_ID

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"


class Schemas:
    """The schemas of these structs and of all they hold: `components` by name, and a reference for each."""

    def __init__(self, kinds: Iterable[type[Struct]]) -> None:
        wanted: list[type[Struct]] = sorted(set(kinds), key=lambda kind: kind.__name__)
        references, self.components = msgspec.json.schema_components(wanted, ref_template=_REF)
        self._by_kind = dict(zip(wanted, references, strict=True))
        _sharpen(self.components)
        self.components = portable(self.components)

    def of(self, kind: type[Struct]) -> Json:
        return self._by_kind[kind]

    def fields_of(self, kind: type[Struct]) -> Mapping[str, Json]:
        """The schema of each field of a struct, by name."""
        fields: Mapping[str, Json] = self.components[kind.__name__]["properties"]
        return fields


def schema_of(kind: Any) -> Json:
    """The schema of anything but a struct."""
    return portable(msgspec.json.schema(kind))


def portable(schema: Json) -> Json:
    """With patterns as JSON Schema writes them: there `$` is the end, and `\\Z` means nothing."""
    return {name: _portable(name, value) for name, value in schema.items()}


def _portable(name: str, value: Any) -> Any:
    match value:
        case dict():
            return portable(value)
        case list():
            return [_portable("", one) for one in value]
        case str() if name == "pattern":
            return re.sub(r"\\Z$", "$", value)
        case _:
            return value


def _sharpen(components: Json) -> None:
    """What is checked elsewhere than in the structs: raw items, ids, and what excludes each other."""
    components["BatchRequest"]["properties"]["jobs"]["items"] = {
        "description": "The body of POST /v1/jobs; what does not fit is refused by itself, with its index."
    }
    components["Decision"]["properties"]["cancel"]["items"]["pattern"] = f"^{JOB_ID}$"
    for shows_lease in ("Lease", "Outcome", "LogEntry"):
        components[shows_lease]["properties"]["job"] = {"type": "string", "pattern": f"^{JOB_ID}$"}
    for asks_for_jobs in ("SubmitRequest", "ScheduleRequest", "ScheduleBody", "ScheduleChange"):
        components[asks_for_jobs]["properties"]["params"] |= {"type": "object"}
        components[asks_for_jobs]["properties"]["interval"]["anyOf"][0]["minimum"] = 1
    components["PreviewRequest"]["properties"]["interval"]["anyOf"][0]["minimum"] = 1
    components["SubmitRequest"]["not"] = {
        "required": ["delay_seconds", "scheduled_at"],
        "properties": {"delay_seconds": {"type": "number"}, "scheduled_at": {"type": "string"}},
    }
