"""Calls to AWS as CloudTrail keeps them, as the actions that IAM asks policies about. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

PARTIQL: Final = {
    "INSERT": "PartiQLInsert",
    "UPDATE": "PartiQLUpdate",
    "DELETE": "PartiQLDelete",
    "SELECT": "PartiQLSelect",
}
TRANSACTION: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
    "Get": "GetItem",
}
BATCHES: Final = {
    "sqs:SendMessageBatch": "sqs:SendMessage",
    "sqs:DeleteMessageBatch": "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
    "sns:PublishBatch": "sns:Publish",
    "s3:HeadObject": "s3:GetObject",
    "s3:CreateMultipartUpload": "s3:PutObject",
    "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListObjects": "s3:ListBucket",
}
"""Calls that are not actions of their own."""


class Call(Struct, frozen=True):
    """One call: its service, name and parameters, and the access key that signed it."""

    key: str
    service: str
    name: str
    parameters: Mapping[str, Any]


class Use(Struct, frozen=True, order=True):
    """An action of IAM on a thing: the end of an ARN (`index/age`, a queue's name), empty where the call tells none."""

    action: str
    thing: str = ""


def call_of(event: Mapping[str, Any]) -> Call:
    """The call that an event of CloudTrail tells of."""
    service = str(event["eventSource"]).partition(".")[0]
    parameters = event["requestParameters"] or {}
    # Calls of the query protocol are named in their parameters.
    name = parameters.get("Action", event["eventName"]) if "." in event["eventName"] else event["eventName"]
    return Call(str(event["userIdentity"]["accessKeyId"]), service, str(name), parameters)


def uses_of(call: Call) -> Iterator[Use]:
    """What policies must allow for a call."""
    if call.service == "dynamodb":
        yield from _table_uses(call)
        return
    action = f"{call.service}:{call.name}"
    yield Use(BATCHES.get(action, action), _thing(call.parameters))
    if call.name == "RunTask":
        yield Use("iam:PassRole")
        if call.parameters.get("tags") or call.parameters.get("propagateTags"):
            yield Use("ecs:TagResource")


def _table_uses(call: Call) -> Iterator[Use]:
    parameters = call.parameters
    match call.name:
        case "TransactWriteItems" | "TransactGetItems":
            for item in parameters["TransactItems"]:
                yield from (Use(f"dynamodb:{TRANSACTION[kind]}", "table") for kind in item)
        case "BatchExecuteStatement" | "ExecuteStatement" | "ExecuteTransaction":
            for statement in _statements(parameters):
                yield Use(f"dynamodb:{PARTIQL[statement.split(maxsplit=1)[0].upper()]}", "table")
        case name:
            index = parameters.get("IndexName")
            yield Use(f"dynamodb:{name}", f"index/{index}" if index else "table")


def _statements(parameters: Mapping[str, Any]) -> list[str]:
    many = parameters.get("Statements") or parameters.get("TransactStatements") or [parameters]
    return [str(one["Statement"]) for one in many]


def _thing(parameters: Mapping[str, Any]) -> str:
    for name in ("QueueUrl", "TopicArn", "QueueName"):
        if name in parameters:
            return str(parameters[name]).rpartition("/")[2].rpartition(":")[2]
    return ""


def allowed_uses(documents: Iterable[Mapping[str, Any]]) -> list[tuple[str, Sequence[str]]]:
    """Each action of policies, with the ARNs of its statement."""
    found: list[tuple[str, Sequence[str]]] = []
    for document in documents:
        for statement in document["Statement"]:
            resources = _listed(statement["Resource"])
            found += [(str(action), resources) for action in _listed(statement["Action"])]
    return found


def unused(allowed: Iterable[tuple[str, Sequence[str]]], used: Iterable[Use]) -> set[str]:
    """The actions that are allowed on things on which they were never used."""
    by_action: dict[str, set[str]] = {}
    for use in used:
        by_action.setdefault(use.action, set()).add(use.thing)
    return {
        f"{action} on {resources}" for action, resources in allowed if not _is_used(resources, by_action.get(action))
    }


def _is_used(resources: Sequence[str], things: set[str] | None) -> bool:
    if things is None:
        return False
    return any(_covers(resource, thing) for resource in resources for thing in things)


def _covers(resource: str, thing: str) -> bool:
    """Whether an ARN, or its beginning before a `*`, is that of a thing."""
    if thing == "table":
        return ":table/" in resource and "/index/" not in resource
    return not thing or resource.endswith((f"/{thing}", f":{thing}")) or resource.endswith("*")


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]
