"""OpenAPI 3.1 from the table of operations: what is documented is what is routed."""

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus

from msgspec import Struct

from penstock import __version__
from penstock.api.exchange import BYTES, JSON, ApiReply, ApiRequest, json_reply
from penstock.api.operation import Answer, Header, Operation, operation
from penstock.api.path import KINDS
from penstock.api.problems import PROBLEM_JSON
from penstock.api.schemas import OBJECT, Json, Schemas, fields_of, schema_of
from penstock.model.wire import Problem

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
    "queues": "How much waits in each queue; pause and resume it.",
    "types": "Job types: which are known, their aliases, and taking one out of use.",
    "schedules": "Jobs at intervals or by a cron: create, change, pause, trigger, preview, backfill.",
    "workers": "The list of workers, and the calls by which a worker gets jobs and settles them.",
    "schedulers": "The calls by which a scheduler reads what is due and records its decisions.",
    "fleets": "Workers that are scaled together: their size, why, and changing it by hand.",
    "shards": "The job stores: their health, and adding, draining and removing them.",
    "keys": "API keys: create, list, rotate and revoke them.",
    "health": "Whether this process is alive, and whether it takes jobs now.",
    "metrics": "Metrics in Prometheus' text format.",
    "openapi": "This document.",
}
"""What each group of operations is for; the groups are the modules of the operations."""
CHALLENGE: Json = {"WWW-Authenticate": {"description": "What is needed.", "schema": {"type": "string"}}}
RETRY_AFTER: Json = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}}}


def describing(operations: tuple[Operation, ...]) -> Operation:
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
    schemas = Schemas((one.body for one in operations if one.body is not None), _answered(operations))
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


def _answered(operations: Iterable[Operation]) -> Iterator[type[Struct]]:
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
        case "text/plain":
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
