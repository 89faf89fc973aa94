"""JSON Schemas of the bodies, as msgspec writes them, with what it cannot know added."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct, defstruct, field
from msgspec.structs import FieldInfo

from penstock.api.path import JOB_ID
from penstock.model.job import Claim
from penstock.model.wire import ClaimResponse, SubmitRequest

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"


class Schemas:
    """The schemas of these structs and of all they hold: `components` by name, and a reference for each."""

    def __init__(self, kinds: Iterable[type[Struct]]) -> None:
        wanted = sorted({SubmitRequest, *kinds}, key=lambda kind: kind.__name__)
        stand_ins = _stand_ins()
        references, self.components = msgspec.json.schema_components(
            [stand_ins.get(kind, kind) for kind in wanted], ref_template=_REF
        )
        self._by_kind = dict(zip(wanted, references, strict=True))
        _sharpen(self.components)

    def of(self, kind: type[Struct]) -> Json:
        return self._by_kind[kind]


def _sharpen(components: Json) -> None:
    """What is checked elsewhere than in the structs: raw items, ids, and what excludes each other."""
    components["BatchRequest"]["properties"]["jobs"]["items"] = {"$ref": _REF.format(name="SubmitRequest")}
    for shows_lease in ("Lease", "Outcome", "LogEntry"):
        components[shows_lease]["properties"]["job"] = {"type": "string", "pattern": JOB_ID}
    components["SubmitRequest"]["not"] = {
        "required": ["delay_seconds", "scheduled_at"],
        "properties": {"delay_seconds": {"type": "number"}, "scheduled_at": {"type": "string"}},
    }


def _stand_ins() -> dict[type[Struct], type[Struct]]:
    """msgspec cannot describe a default that is Raw: structs that say the same without one."""
    claims: Any = tuple[_plain(Claim), ...]  # type: ignore[misc]
    return {
        SubmitRequest: _plain(SubmitRequest),
        ClaimResponse: defstruct("ClaimResponse", [("claims", claims)]),
    }


def _plain(kind: type[Struct]) -> type[Struct]:
    return defstruct(
        kind.__name__,
        [_plain_field(one) for one in msgspec.structs.fields(kind)],
        namespace={"__doc__": kind.__doc__},
        forbid_unknown_fields=kind.__struct_config__.forbid_unknown_fields,
        kw_only=True,
    )


def _plain_field(one: FieldInfo) -> tuple[str, Any, Any]:
    default = msgspec.json.decode(one.default) if isinstance(one.default, Raw) else one.default
    if default == {}:
        return one.name, one.type, field(default_factory=dict)
    if one.default_factory is not msgspec.NODEFAULT:
        return one.name, one.type, field(default_factory=one.default_factory)
    return one.name, one.type, field(default=default)
