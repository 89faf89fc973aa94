"""OpenAPI 3.1 from the table of operations: what is documented is what is routed."""

import re
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct, inspect

from penstock import __version__
from penstock.api.operation import Answer, Header, Operation, operation
from penstock.api.problems import PROBLEM_JSON
from penstock.api.request import BYTES, JOB_ID, JSON, KINDS, ApiReply, ApiRequest, json_reply
from penstock.model.wire.jobs import Problem

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


_PART = re.compile(r"{(\w+)}")

# Every operation refuses parameters it does not know and may meet a store that is away; without a key none answers a
# web page, and a POST is refused in the form in which one could send it.
ALWAYS = (403, 422, 500, 503)
FROM_JSON = (400, 413, 415)
FROM_POST = (415,)
GUARDED = (401,)
KEY = "key"
SECURITY_SCHEMES: Json = {
    KEY: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "pk_<id>_<secret>",
        "description": "An API key that has one of the scopes named with an operation; `admin` is enough everywhere.",
    }
}
TAGS = {
    "jobs": "Submit jobs, look at them, wait for them, list, cancel and retry them.",
    "batch": "Submit many jobs in one request; each is accepted or refused by itself.",
    "files": "Upload inputs, and download inputs and outputs.",
    "logs": "What jobs wrote while they ran.",
    "events": "What changed the states of jobs: as pages, and as streams that go on.",
    "queues": "How much waits in each queue; pause and resume it.",
    "history": "What came, started and ended over time, how many jobs waited, and how long.",
    "live": "The whole system at a glance, again and again: what pages are told.",
    "types": "Job types: which are known, their aliases, and taking one out of use.",
    "schedules": "Jobs at intervals or by a cron: create, change, pause, trigger, preview, backfill.",
    "workers": "The list of workers, and the calls by which a worker gets jobs and settles them.",
    "schedulers": "The calls by which a scheduler reads what is due and records its decisions.",
    "fleets": "Workers that are scaled together: their size, why, and changing it by hand.",
    "subscriptions": "Job events delivered to sinks: create, test, pause, rotate and replay them; their logs.",
    "shards": "The job stores: their health, and adding, draining and removing them.",
    "keys": "API keys: create, list, rotate and revoke them.",
    "sessions": "Signing in and out with a browser.",
    "health": "Whether this process is alive, and whether it takes jobs now.",
    "metrics": "Metrics in Prometheus' text format.",
    "openapi": "This document.",
}
"""What each group of operations is for; the groups are the modules of the operations."""
CHALLENGE: Json = {"WWW-Authenticate": {"description": "What is needed.", "schema": {"type": "string"}}}
RETRY_AFTER: Json = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}}}


def describe_api(operations: tuple[Operation, ...]) -> Operation:
    """The operation that serves the document about `operations` and about itself."""

    @operation("GET /openapi.json", {200: Answer("This document.", None, (JSON,))})
    async def openapi(call: ApiRequest) -> ApiReply:
        """Describe this API as OpenAPI 3.1."""
        return locked if call.engine.keys.required else unlocked

    everything = (*operations, openapi)
    locked, unlocked = (json_reply(200, document(everything, needs_keys=needed)) for needed in (True, False))
    return openapi


def document(operations: Iterable[Operation], *, needs_keys: bool) -> Json:
    """The whole document, of a server that needs API keys or of one that only honours them."""
    operations = tuple(operations)
    paths: dict[str, Json] = {}
    schemas = Schemas((one.body for one in operations if one.body is not None), _answer_types(operations))
    for one in operations:
        security = {"security": _security(one, needs_keys=needs_keys)}
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schemas) | security
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that gave you this document."}],
        "tags": [{"name": tag, "description": about} for tag, about in TAGS.items()],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": SECURITY_SCHEMES},
    }


def _security(one: Operation, *, needs_keys: bool) -> list[Json]:
    """One entry for each scope that is enough; an empty one where no key is."""
    named: list[Json] = [{KEY: [scope]} for scope in one.scopes]
    return named if needs_keys or one.needs_key or not named else [*named, {}]


def _answer_types(operations: Iterable[Operation]) -> Iterator[type[Struct]]:
    yield Problem
    for one in operations:
        yield from (answer.body for answer in one.answers.values() if answer.body is not None)


def _operation(one: Operation, schemas: Schemas) -> Json:
    described: Json = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.group],
        "parameters": [*_path_parameters(one.path), *_query_parameters(one.query), *map(_header, one.headers)],
        "responses": _responses(one, schemas),
    }
    if one.body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas.of(one.body)}}}
    elif one.takes_bytes:
        described["requestBody"] = {"required": True, "content": {BYTES: {"schema": {}}}}
    return described


def _path_parameters(path: str) -> list[Json]:
    return [
        {"name": part, "in": "path", "required": True, "schema": schema_of(KINDS[part])} for part in _PART.findall(path)
    ]


def _query_parameters(query: type[Struct] | None) -> list[Json]:
    fields = {} if query is None else fields_of(query)
    return [{"name": name, "in": "query", "schema": _without_null(schema)} for name, schema in fields.items()]


def _without_null(schema: Json) -> Json:
    """A parameter is left out rather than null."""
    given = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return given[0] if given else schema


def _header(header: Header) -> Json:
    schema = schema_of(header.kind)
    return {
        "name": header.name,
        "in": "header",
        "description": header.about,
        "required": header.required,
        "schema": schema,
    }


def _responses(one: Operation, schemas: Schemas) -> Json:
    good = {str(status): _answer(answer, schemas) for status, answer in one.answers.items()}
    return good | {str(status): _problem(status, schemas) for status in sorted(_refusals(one))}


def _refusals(one: Operation) -> set[int]:
    from_json = FROM_JSON if one.body is not None else ()
    from_post = FROM_POST if one.method == "POST" else ()
    guarded = GUARDED if one.scopes else ()
    return {*from_json, *from_post, *guarded, *one.refusals, *ALWAYS}


def _answer(answer: Answer, schemas: Schemas) -> Json:
    described: Json = {"description": answer.about}
    if answer.contents:
        described["content"] = {kind: {"schema": _content(kind, answer, schemas)} for kind in answer.contents}
    if answer.headers:
        described["headers"] = {name: {"schema": {"type": "string"}} for name in answer.headers}
    return described


def _content(content_type: str, answer: Answer, schemas: Schemas) -> Json:
    match content_type:
        case "application/json":
            return schemas.of(answer.body) if answer.body is not None else OBJECT
        case "text/plain" | "text/event-stream":
            return {"type": "string"}
        case _:
            return {}


def _problem(status: int, schemas: Schemas) -> Json:
    described: Json = {
        "description": HTTPStatus(status).phrase,
        "content": {PROBLEM_JSON: {"schema": schemas.of(Problem)}},
    }
    headers = {401: CHALLENGE, 403: CHALLENGE, 503: RETRY_AFTER}.get(status)
    return described | ({"headers": headers} if headers else {})
