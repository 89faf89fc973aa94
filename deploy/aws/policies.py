"""What each role may call: written by hand, no more than the code calls.

tests/services/test_aws_policies.py records the calls of each function and of a worker and compares both ways.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

OBJECTS: Final = "objects are named by the jobs that they belong to"
LOG_STREAMS: Final = "a log's streams are named when they are made"
TASKS: Final = "tasks are named when they are started; these are the cluster's"

READ: Final = ("DescribeTable", "GetItem", "BatchGetItem", "Query", "PartiQLSelect")
WRITE: Final = (
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "ConditionCheckItem",
    "BatchWriteItem",
    "PartiQLInsert",
    "PartiQLUpdate",
)


@dataclass(frozen=True)
class Allow:
    """Calls of one service on these resources. One with a `*` needs the reason why it is not smaller as `wildcard`."""

    service: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: Mapping[str, Mapping[str, str]] | None = None
    wildcard: str = ""

    def __post_init__(self) -> None:
        if bool(self.wildcard) != any("*" in word for word in (*self.actions, *self.resources)):
            raise ValueError(f"{self}: a wildcard and its reason go together")


@dataclass
class Places:
    """The resources of the stack by their ARNs. `passed_roles` are those that a started task gets."""

    table: str
    indexes: tuple[str, ...]
    stream: str
    bucket: str
    topic: str
    tickets: tuple[str, ...]
    wake_ups: str
    registry: str
    cluster: str
    tasks: str
    task_definitions: tuple[str, ...]
    services: tuple[str, ...]
    worker_logs: str
    logs: Mapping[str, str] = field(default_factory=dict)
    passed_roles: tuple[str, ...] = ()


def statements_of(name: str, places: Places) -> list[Allow]:
    """The statements of a function's role, or of the workers'."""
    allowed = {
        "add": [*_read(places), *_write(places), *_objects(places), *_send(places), *_wake(places)],
        "query": [*_read(places), _probe_table(places), _read_objects(places), *_look(places)],
        "cancel": [*_read(places), *_write(places), *_look(places)],
        "rest": [*_read(places), *_write(places), *_objects(places), *_send(places), *_wake(places)],
        "sweep": [
            *_read(places),
            *_write(places),
            *_send(places),
            *_wake(places),
            *_receive_wake_ups(places),
            *_fleets(places),
            *_publish(places),
        ],
        "publish": [*_read(places), *_write(places), *_publish(places), *_wake(places), *_stream(places)],
        "worker": [*_read(places), *_write(places), *_objects(places), *_send(places), *_receive(places)],
    }[name]
    return [*allowed, *_log(name, places)]


def execution(places: Places) -> list[Allow]:
    """What ECS itself does for a task before it starts: pull the image, write the log."""
    return [
        Allow("ecr", ("BatchGetImage", "GetDownloadUrlForLayer"), (places.registry,)),
        Allow("ecr", ("GetAuthorizationToken",), ("*",), wildcard="AWS knows no smaller resource for it"),
        Allow("logs", ("CreateLogStream", "PutLogEvents"), (f"{places.worker_logs}:*",), wildcard=LOG_STREAMS),
    ]


def _read(places: Places) -> list[Allow]:
    return [Allow("dynamodb", READ, (places.table,)), Allow("dynamodb", ("Query",), places.indexes)]


def _write(places: Places) -> list[Allow]:
    return [Allow("dynamodb", WRITE, (places.table,))]


def _probe_table(places: Places) -> Allow:
    """The item by whose change a process finds out that a table which was away answers again; no job is like it."""
    own = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": "*#shard"}}
    return Allow("dynamodb", ("UpdateItem",), (places.table,), own)


def _read_objects(places: Places) -> Allow:
    return Allow("s3", ("GetObject",), (f"{places.bucket}/*",), wildcard=OBJECTS)


def _objects(places: Places) -> list[Allow]:
    return [Allow("s3", ("GetObject", "PutObject", "DeleteObject"), (f"{places.bucket}/*",), wildcard=OBJECTS)]


def _look(places: Places) -> list[Allow]:
    """Find the queues and count what they hold."""
    return [
        Allow("sqs", ("GetQueueUrl", "GetQueueAttributes"), places.tickets),
        Allow("sqs", ("ListQueues",), ("*",), wildcard="AWS knows no smaller resource for a list"),
    ]


def _send(places: Places) -> list[Allow]:
    return [*_look(places), Allow("sqs", ("SendMessage",), places.tickets)]


def _receive(places: Places) -> list[Allow]:
    return [Allow("sqs", ("ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"), places.tickets)]


def _wake(places: Places) -> list[Allow]:
    return [Allow("sqs", ("SendMessage",), (places.wake_ups,))]


def _receive_wake_ups(places: Places) -> list[Allow]:
    """What Lambda's event source calls with the role of the function."""
    return [Allow("sqs", ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"), (places.wake_ups,))]


def _stream(places: Places) -> list[Allow]:
    """What Lambda's event source calls with the role of the function."""
    return [
        Allow("dynamodb", ("DescribeStream", "GetRecords", "GetShardIterator"), (places.stream,)),
        Allow("dynamodb", ("ListStreams",), ("*",), wildcard="AWS knows no smaller resource for a list"),
    ]


def _publish(places: Places) -> list[Allow]:
    return [Allow("sns", ("Publish",), (places.topic,))]


def _fleets(places: Places) -> list[Allow]:
    in_cluster = {"ArnEquals": {"ecs:cluster": places.cluster}}
    return [
        Allow(
            "ecs",
            ("RunTask",),
            places.task_definitions,
            in_cluster,
            wildcard="each deployment makes a new revision; the sweep runs the newest",
        ),
        Allow("ecs", ("DescribeTasks", "StopTask"), (places.tasks,), in_cluster, wildcard=TASKS),
        Allow("ecs", ("DescribeServices",), places.services, in_cluster),
        Allow("ecs", ("ListTasks",), ("*",), in_cluster, wildcard="AWS knows no smaller resource than the condition"),
        Allow(
            "ecs",
            ("TagResource",),
            (places.tasks,),
            {"StringEquals": {"ecs:CreateAction": "RunTask"}},
            wildcard=TASKS,
        ),
        Allow(
            "iam",
            ("PassRole",),
            places.passed_roles,
            {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
        ),
    ]


def _log(name: str, places: Places) -> list[Allow]:
    if name not in places.logs:
        return []
    streams = (f"{places.logs[name]}:*",)
    return [Allow("logs", ("CreateLogStream", "PutLogEvents"), streams, wildcard=LOG_STREAMS)]
