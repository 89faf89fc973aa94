"""JSON Schemas of the bodies, as msgspec writes them, with what it cannot know added."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, inspect

from penstock.api.path import JOB_ID

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_NONE = object()
OBJECT: Json = {"type": "object", "additionalProperties": True}
"""Any object. Generators of clients take one that does not say so for an empty one."""


class Schemas:
    """The schemas of bodies that are sent and answered, and of all they hold: `components` by name.

    Generated clients take a property that has a `default` for one that is always there. So none has one: in an answer
    it is required if the server always writes it, and otherwise it may be left out.
    """

    def __init__(self, sent: Iterable[type[Struct]], answered: Iterable[type[Struct]]) -> None:
        requests, answers = set(sent), set(answered)
        wanted: list[type[Struct]] = sorted(requests | answers, key=lambda kind: kind.__name__)
        references, components = msgspec.json.schema_components(wanted, ref_template=_REF)
        self._by_kind = dict(zip(wanted, references, strict=True))
        _sharpen(components)
        _require(components, _always_written(answers) - {kind.__name__ for kind in _structs_in(requests)})
        self.components = portable(components)

    def of(self, kind: type[Struct]) -> Json:
        return self._by_kind[kind]


def fields_of(kind: type[Struct]) -> Mapping[str, Json]:
    """The schema of each field of a struct, by name."""
    _, components = msgspec.json.schema_components((kind,), ref_template=_REF)
    fields: Mapping[str, Json] = portable(components[kind.__name__]["properties"])
    return fields


def schema_of(kind: Any) -> Json:
    """The schema of anything but a struct."""
    return portable(msgspec.json.schema(kind))


def portable(schema: Json) -> Json:
    """As every reader takes it: a pattern ends with `$` instead of `\\Z`, an object that may hold anything says so."""
    if schema.get("type") == "object" and "properties" not in schema:
        schema = OBJECT | schema
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


def _require(components: Json, always_written: set[str]) -> None:
    """Require the properties with a default where they are always written, and drop the defaults."""
    for name, component in components.items():
        with_default = [
            field
            for field, schema in component.get("properties", {}).items()
            if schema.pop("default", _NONE) is not _NONE
        ]
        if name in always_written:
            component["required"] = [*component.get("required", ()), *with_default]


def _always_written(kinds: Iterable[type[Struct]]) -> set[str]:
    """The names of the structs that are encoded with every field."""
    return {kind.__name__ for kind in _structs_in(kinds) if not kind.__struct_config__.omit_defaults}


def _structs_in(kinds: Iterable[type[Struct]]) -> set[type[Struct]]:
    """These structs and all that their fields can hold."""
    found: set[type[Struct]] = set()
    left: list[object] = list(inspect.multi_type_info(kinds))
    while left:
        match left.pop():
            case inspect.StructType(cls=cls, fields=fields) if cls not in found:
                found.add(cls)
                left.extend(field.type for field in fields)
            case inspect.Type() as other if not isinstance(other, inspect.StructType):
                left.extend(_parts(other))
    return found


def _parts(kind: inspect.Type) -> Iterator[inspect.Type]:
    """What a type is made of: the choices of a union, the items of a list, the keys and values of an object."""
    for name in kind.__struct_fields__:
        value = getattr(kind, name)
        yield from (one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, inspect.Type))


def _sharpen(components: Json) -> None:
    """What is checked elsewhere than in the structs: raw items, ids, and what excludes each other."""
    components["BatchRequest"]["properties"]["jobs"]["items"] = {
        "description": "The body of POST /v1/jobs; what does not fit is refused by itself, with its index."
    }
    components["Decision"]["properties"]["cancel"]["items"]["pattern"] = f"^{JOB_ID}$"
    for shows_lease in ("Lease", "Outcome", "LogEntry"):
        components[shows_lease]["properties"]["job"] = {"type": "string", "pattern": f"^{JOB_ID}$"}
    for asks_for_jobs in ("SubmitRequest", "ScheduleRequest", "ScheduleBody", "ScheduleChange"):
        components[asks_for_jobs]["properties"]["params"] |= OBJECT
        components[asks_for_jobs]["properties"]["interval"]["anyOf"][0]["minimum"] = 1
    components["PreviewRequest"]["properties"]["interval"]["anyOf"][0]["minimum"] = 1
    components["SubmitRequest"]["not"] = {
        "required": ["delay_seconds", "scheduled_at"],
        "properties": {"delay_seconds": {"type": "number"}, "scheduled_at": {"type": "string"}},
    }
