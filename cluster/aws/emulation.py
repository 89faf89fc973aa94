"""The template as the emulator can take it: each difference to the shipped one is a function here, with its reason."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from msgspec import Struct

Template = dict[str, Any]
Properties = dict[str, Any]

PARTIQL = "dynamodb:PartiQL"
BATCH = "dynamodb:BatchExecuteStatement"
MOST_WORKERS = 2
BATCHED = frozenset({"sqs:SendMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sns:Publish"})


class Differences(Struct, frozen=True, kw_only=True):
    """What containers and functions get here besides what the template gives them.

    `program` stands for the image's entry point. `mounts` are folders of this machine, read-only; `written` are not.
    """

    image: str
    program: Sequence[str]
    mounts: Sequence[str]
    written: Sequence[str]
    worker_environ: Mapping[str, str]
    function_environ: Mapping[str, str]


def emulated(template: Template, differences: Differences) -> Template:
    """The template with every difference."""
    made = deepcopy(template)
    leave_out_application_auto_scaling(made)
    allow_plain_http(made)
    name_batches_as_the_emulator_does(made)
    widen_what_the_emulator_does_not_tell_policies(made)
    use_programs_of_this_machine(made, differences)
    give_functions(made, differences.function_environ)
    return made


def leave_out_application_auto_scaling(template: Template) -> None:
    """The emulator has no Application Auto Scaling; so the services of mode alarms stay at 0."""
    gone = _named(template, lambda one: one["Type"].startswith("AWS::ApplicationAutoScaling::"))
    for name in gone:
        del template["Resources"][name]
    for alarm in _of_kind(template, "AWS::CloudWatch::Alarm"):
        if any(name in json.dumps(alarm.get("AlarmActions", [])) for name in gone):
            del alarm["AlarmActions"]


def allow_plain_http(template: Template) -> None:
    """The emulator speaks HTTP: what refuses calls without TLS would refuse them all."""
    for name in _named(template, lambda one: "aws:SecureTransport" in json.dumps(one.get("Properties", {}))):
        del template["Resources"][name]


def name_batches_as_the_emulator_does(template: Template) -> None:
    """AWS asks a policy about each statement and each message of a batch (PartiQLUpdate, SendMessage); the emulator
    about the call (BatchExecuteStatement, which it asks about no table; SendMessageBatch)."""
    for role in _of_kind(template, "AWS::IAM::Role"):
        for statement in _statements(role):
            actions = _listed(statement["Action"])
            statement["Action"] = [*actions, *(f"{action}Batch" for action in actions if action in BATCHED)]
        if any(PARTIQL in json.dumps(statement["Action"]) for statement in _statements(role)):
            document = role["Policies"][0]["PolicyDocument"]
            document["Statement"].append({"Effect": "Allow", "Action": BATCH, "Resource": "*"})


def widen_what_the_emulator_does_not_tell_policies(template: Template) -> None:
    """It asks about the cluster, whatever a call to ECS is about, and tells no keys of DynamoDB for conditions."""
    for role in _of_kind(template, "AWS::IAM::Role"):
        for statement in _statements(role):
            statement.pop("Condition", None)
            if any(action.startswith("ecs:") for action in _listed(statement["Action"])):
                statement["Resource"] = {"Fn::GetAtt": ["Cluster", "Arn"]}


def use_programs_of_this_machine(template: Template, differences: Differences) -> None:
    """No image can be pulled here: tasks get this machine's programs, mounted, in an empty image. Fargate has no such
    mounts. They share the machine's network, as the emulator listens on loopback only."""
    for task in _of_kind(template, "AWS::ECS::TaskDefinition"):
        places = [*differences.mounts, *differences.written]
        task["Volumes"] = [{"Name": f"host{n}", "Host": {"SourcePath": place}} for n, place in enumerate(places)]
        task["NetworkMode"] = "host"
        [container] = task["ContainerDefinitions"]
        container["Image"] = differences.image
        container["Command"] = [*differences.program, *container["Command"]]
        container["MountPoints"] = [
            {"SourceVolume": f"host{n}", "ContainerPath": place, "ReadOnly": place not in differences.written}
            for n, place in enumerate(places)
        ]
        container["Environment"] += [
            {"Name": name, "Value": value} for name, value in differences.worker_environ.items()
        ]
        del container["LogConfiguration"]


def give_functions(template: Template, environ: Mapping[str, str]) -> None:
    """A run takes minutes, so functions wait for less long than by default; and all workers are on this machine."""
    for function in _of_kind(template, "AWS::Lambda::Function"):
        variables = function["Environment"]["Variables"]
        variables["PENSTOCK_CONFIG_TEXT"] = re.sub(
            r"max = \d+", f"max = {MOST_WORKERS}", variables["PENSTOCK_CONFIG_TEXT"]
        )
        variables |= environ


def _named(template: Template, true: Callable[[dict[str, Any]], bool]) -> list[str]:
    return [name for name, one in template["Resources"].items() if true(one)]


def _of_kind(template: Template, kind: str) -> list[Properties]:
    return [one["Properties"] for one in template["Resources"].values() if one["Type"] == kind]


def _statements(role: Properties) -> list[Properties]:
    return [one for policy in role["Policies"] for one in policy["PolicyDocument"]["Statement"]]


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]
