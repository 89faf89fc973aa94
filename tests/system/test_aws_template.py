"""The template of AWS: it is what its source gives, the linters let it pass, and every resource is as promised."""

import os
import subprocess
from pathlib import Path

import pytest

from deploy.aws.job_types import InvalidTypes, read_types
from tests.aws_template import ROOT, TEMPLATE, listed, resources, statements, template

CDK = ROOT / ".infrastructure" / "venv" / "bin" / "python"
CFN_LINT = ROOT / ".emulators" / "venv" / "bin" / "cfn-lint"
NOT_LINTED = {
    "W3005": "the CDK says again on what a resource depends",
    "W1033": "the empty default of SubnetIds is used only with a VPC of the user's",
}
UNTAGGED = {
    "AWS::ApiGatewayV2::Integration",
    "AWS::ApiGatewayV2::Route",
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::EC2::Route",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::Scheduler::Schedule",
}
"""Kinds that CloudFormation gives no tags."""


def _installed(program: Path, target: str) -> str:
    if not program.exists():
        missing = f"no {program.name}: run `make {target}`"
        if "CI" in os.environ:
            raise FileNotFoundError(missing)
        pytest.skip(missing)
    return str(program)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_committed_template_is_what_its_source_gives_and_cdk_nag_finds_nothing_new() -> None:
    command = [_installed(CDK, "infrastructure"), "-m", "deploy.aws.app", "--check"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_cfn_lint_has_nothing_to_say() -> None:
    command = [_installed(CFN_LINT, "emulators"), "--ignore-checks", *NOT_LINTED, "--", str(TEMPLATE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_has_neither_assets_nor_an_account_nor_a_region() -> None:
    text = TEMPLATE.read_text()
    assert not [word for word in ("cdk-hnb659fds", "BootstrapVersion", "AssetParameters", "us-east-1") if word in text]
    assert not [kind for kind in ("AWS::EC2::NatGateway", "Custom::") if kind in text]


def test_every_resource_that_can_have_tags_has_that_of_the_system() -> None:
    for name, one in template()["Resources"].items():
        if one["Type"] in UNTAGGED:
            continue
        tags = one["Properties"]["Tags"]
        pairs = tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}
        assert pairs["penstock:system"] == {"Ref": "AWS::StackName"}, name


def test_each_function_has_a_role_and_a_log_of_its_own() -> None:
    functions = resources("AWS::Lambda::Function")
    assert functions.keys() == {"Add", "Query", "Cancel", "Rest", "Sweep", "Publish"}
    for name, function in functions.items():
        assert function["Role"] == {"Fn::GetAtt": [f"{name}Role", "Arn"]}
        assert function["LoggingConfig"] == {"LogGroup": {"Ref": f"{name}Logs"}}
        assert function["Handler"] == f"penstock.functions.handlers.{name.lower()}"


def test_no_log_is_kept_for_ever() -> None:
    for group in resources("AWS::Logs::LogGroup").values():
        assert group["RetentionInDays"] == {"Ref": "LogDays"}


def test_a_queue_that_tells_nothing_raises_no_alarm() -> None:
    alarms = resources("AWS::CloudWatch::Alarm")
    assert {"ReportDeepAlarm", "ReportOldestAlarm", "ReportDeadAlarm", "TranscodeEmptyAlarm", "SweepErrorsAlarm"} <= (
        alarms.keys()
    )
    assert {alarm["TreatMissingData"] for alarm in alarms.values()} == {"notBreaching"}


def test_a_service_begins_with_no_task_and_alarms_take_it_from_zero_to_its_most_and_back() -> None:
    [service] = resources("AWS::ECS::Service").values()
    assert service["DesiredCount"] == 0
    [target] = resources("AWS::ApplicationAutoScaling::ScalableTarget").values()
    assert (target["MinCapacity"], target["MaxCapacity"]) == (0, 10)
    policies = resources("AWS::ApplicationAutoScaling::ScalingPolicy")
    alarms = resources("AWS::CloudWatch::Alarm")
    assert alarms["TranscodeDeepAlarm"]["AlarmActions"] == [{"Ref": "TranscodeScaleOut"}]
    assert alarms["TranscodeEmptyAlarm"]["AlarmActions"] == [{"Ref": "TranscodeScaleIn"}]
    steps = policies["TranscodeScaleIn"]["StepScalingPolicyConfiguration"]
    assert (steps["AdjustmentType"], steps["StepAdjustments"][0]["ScalingAdjustment"]) == ("ExactCapacity", 0)


def test_tickets_that_nobody_deletes_end_in_the_dead_letters_of_their_type() -> None:
    queues = resources("AWS::SQS::Queue")
    for name in ("Report", "Thumbnail", "Transcode"):
        redrive = queues[f"{name}Tickets"]["RedrivePolicy"]
        assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": [f"{name}DeadLetters", "Arn"]}


def test_no_role_has_all_actions_of_a_service() -> None:
    for role in resources("AWS::IAM::Role"):
        actions = [action for one in statements(role) for action in listed(one["Action"])]
        assert not [action for action in actions if "*" in action]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "there is none"),
        ('[aws.types."a b"]\ncpu = 256\nmemory = 512\nmax = 1\nmode = "alarms"', "no name for a queue"),
        ('[aws.types.a]\ncpu = 256\nmemory = 512\nmax = 1\nmode = "often"', "none of autoscaler, alarms"),
        ('[aws.types.a]\ncpu = 256\nmemory = 4096\nmax = 1\nmode = "alarms"', "between 512 and 2048"),
        ('[aws.types.a]\ncpu = 300\nmemory = 4096\nmax = 1\nmode = "alarms"', "is none of 256"),
        ('[aws.types.a]\ncpu = 256\nmemory = 512\nmax = 0\nmode = "alarms"', "no number of workers"),
        ("[aws.types.a]\ncpu = 256", "must have cpu, memory, max and mode"),
    ],
)
def test_a_table_of_job_types_that_fargate_could_not_run_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "types.toml"
    file.write_text(text)
    with pytest.raises(InvalidTypes, match=fault):
        read_types(file)
