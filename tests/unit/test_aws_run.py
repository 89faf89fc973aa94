"""The run on an emulated AWS: what it leaves out of the template, which actions it counts, and how it judges."""

import json
from typing import Any

import pytest

from cluster.aws.calls import Call, Use, allowed_uses, call_of, unused, uses_of
from cluster.aws.emulation import Differences, emulated
from cluster.aws.topic import judge_changes
from cluster.checker import Found
from tests.aws_template import template

DIFFERENCES = Differences(
    image="empty",
    program=["python", "-m", "task"],
    mounts=["/usr"],
    written=["/ledger"],
    worker_environ={"A": "1"},
    function_environ={"B": "2"},
)
TABLE = "arn:aws:dynamodb:us-east-1:000000000000:table/jobs"


def _call(service: str, name: str, **parameters: Any) -> Call:
    return Call("key", service, name, parameters)


def _actions(call: Call) -> set[str]:
    return {use.action for use in uses_of(call)}


def test_only_application_auto_scaling_and_the_demand_for_tls_are_left_out_of_the_template() -> None:
    made = emulated(template(), DIFFERENCES)
    gone = template()["Resources"].keys() - made["Resources"].keys()
    kinds = {template()["Resources"][name]["Type"] for name in gone}
    assert kinds == {
        "AWS::ApplicationAutoScaling::ScalableTarget",
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::TopicPolicy",
        "AWS::SQS::QueuePolicy",
    }
    assert not [name for name in gone if f'"{name}"' in json.dumps(made)]


def test_the_shipped_template_is_not_touched() -> None:
    before = json.dumps(template())
    emulated(template(), DIFFERENCES)
    assert json.dumps(template()) == before


def test_tasks_get_the_programs_of_this_machine_and_keep_their_own_command() -> None:
    made = emulated(template(), DIFFERENCES)["Resources"]["ReportTask"]["Properties"]
    [container] = made["ContainerDefinitions"]
    assert container["Command"][:4] == ["python", "-m", "task", "worker"]
    assert [(one["ContainerPath"], one["ReadOnly"]) for one in container["MountPoints"]] == [
        ("/usr", True),
        ("/ledger", False),
    ]


def test_a_call_is_read_from_the_trail_also_where_its_name_is_a_parameter() -> None:
    event = {
        "eventSource": "sns.amazonaws.com",
        "eventName": "POST.sns",
        "userIdentity": {"accessKeyId": "K"},
        "requestParameters": {"Action": "PublishBatch", "TopicArn": "arn:aws:sns:r:0:changes"},
    }
    assert list(uses_of(call_of(event))) == [Use("sns:Publish", "changes")]


@pytest.mark.parametrize(
    ("call", "actions"),
    [
        (_call("dynamodb", "PutItem"), {"dynamodb:PutItem"}),
        (
            _call("dynamodb", "TransactWriteItems", TransactItems=[{"Put": {}}, {"ConditionCheck": {}}]),
            {"dynamodb:PutItem", "dynamodb:ConditionCheckItem"},
        ),
        (
            _call(
                "dynamodb",
                "BatchExecuteStatement",
                Statements=[{"Statement": 'UPDATE "t" SET a = 1'}, {"Statement": 'INSERT INTO "t" VALUE {}'}],
            ),
            {"dynamodb:PartiQLUpdate", "dynamodb:PartiQLInsert"},
        ),
        (_call("sqs", "SendMessageBatch", QueueUrl="http://x/0/jobs-report"), {"sqs:SendMessage"}),
        (_call("ecs", "RunTask", tags=[{"key": "a"}]), {"ecs:RunTask", "iam:PassRole", "ecs:TagResource"}),
        (_call("s3", "HeadObject"), {"s3:GetObject"}),
    ],
)
def test_a_call_is_counted_as_the_actions_that_iam_asks_about(call: Call, actions: set[str]) -> None:
    assert _actions(call) == actions


def test_what_is_allowed_and_never_used_is_told_index_by_index() -> None:
    document = {
        "Statement": [
            {"Action": ["dynamodb:Query", "dynamodb:Scan"], "Resource": TABLE},
            {"Action": "dynamodb:Query", "Resource": f"{TABLE}/index/age"},
        ]
    }
    used = [Use("dynamodb:Query", "table"), Use("dynamodb:Query", "index/place")]
    assert {one.partition(" ")[0] for one in unused(allowed_uses([document]), used)} == {
        "dynamodb:Scan",
        "dynamodb:Query",
    }
    assert not unused(
        allowed_uses([document]), [*used, Use("dynamodb:Scan", "table"), Use("dynamodb:Query", "index/age")]
    )


def test_a_change_that_the_topic_never_told_and_one_of_no_job_are_found() -> None:
    jobs = [Found(id="a", n=1, state="succeeded", fence=1, version=3)]
    told = judge_changes({("a", 1): 2, ("a", 3): 1, ("b", 1): 1}, jobs)
    assert (told.changes, told.repeated, told.good) == (3, 1, False)
    assert told.missed == ("versions [2] of 3 of a",)
    assert told.unknown == ("version 1 of b",)


def test_changes_that_came_once_or_more_and_without_gaps_are_good() -> None:
    jobs = [Found(id="a", n=1, state="succeeded", fence=1, version=2)]
    assert judge_changes({("a", 1): 1, ("a", 2): 3}, jobs).good
    assert not judge_changes({}, []).good
