"""The shipped template on an emulated AWS: a small run of `make aws`, and policies that allow what is called."""

from collections.abc import Iterator

import pytest

from cluster.aws.cloud import FUNCTIONS, WORKER, Cloud, running
from cluster.aws.faults import AwsFault
from cluster.aws.run import AwsPlan, run
from cluster.aws.trail import Trail
from tests.servers_fixtures import real_servers
from tools import lambda_package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REST = {
    *("dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:PartiQLInsert"),
    *("dynamodb:PartiQLUpdate", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"),
    *("sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"),
}
NOT_TAKEN = {
    # Jobs without a key, with tags or large params.
    "add": {"dynamodb:BatchWriteItem", "dynamodb:PartiQLInsert", "dynamodb:PartiQLUpdate", "s3:DeleteObject"},
    # Schedules, subscriptions, uploads, retries by hand and workers over HTTP.
    "rest": REST,
    # Schedules whose jobs have tags; workers that do not drain.
    "sweep": {"dynamodb:BatchWriteItem", "ecs:StopTask", "dynamodb:DeleteItem"},
    # Events that failed are tried again; those that were parked are removed.
    "publish": {"sqs:SendMessage", "dynamodb:DeleteItem"},
    # A worker that leaves; a queue that was not listed yet; tickets of a claim that failed.
    "worker": {
        *("dynamodb:DeleteItem", "s3:DeleteObject", "sqs:ChangeMessageVisibility"),
        *("sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"),
    },
}
"""What the small run has no reason to call, and why a process may."""

SMALL = AwsPlan(jobs=30, faults=(AwsFault.CONTAINER,), to_zero=False)


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with real_servers() as folder:
        code = folder / "lambda.zip"
        assert lambda_package.main([str(code)]) == 0
        with running(folder / "run", code) as cloud:
            yield cloud


def test_jobs_run_in_containers_from_zero_and_none_is_lost_or_doubled_when_one_is_killed(cloud: Cloud) -> None:
    told: list[str] = []
    assert run(cloud, SMALL, told.append), "\n".join(told)
    assert "containers before the first job: 0" in told


@pytest.mark.parametrize("role", [*FUNCTIONS, WORKER])
def test_a_role_allows_nothing_that_its_process_does_not_call(cloud: Cloud, role: str) -> None:
    """That it allows all which is called is shown by the run: ministack refuses the rest."""
    left = {one.partition(" ")[0] for one in Trail(cloud).unused(role)}
    assert left <= NOT_TAKEN.get(role, set()), "no call of the run needs this: take it out of deploy/aws/policies.py"
