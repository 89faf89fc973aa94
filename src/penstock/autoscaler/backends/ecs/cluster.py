"""The few calls of the ECS API that a fleet needs. Each has a deadline, and FleetUnavailable when it fails."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from penstock.autoscaler.backends.ecs.task import TaskRow, row_of
from penstock.aws import AwsRefusal, AwsService
from penstock.model.errors import FleetUnavailable

CALL_WITHIN = timedelta(seconds=20)
AT_ONCE = 100
"""Most tasks of one ListTasks or DescribeTasks."""

ADVICE = {
    "ClusterNotFoundException": "create it, or correct ecs.cluster",
    "ServiceNotFoundException": "create it, or correct ecs.service",
    "ClientException": "correct ecs.task_definition, or what the fleet asks for",
    "InvalidParameterException": "correct what [ecs] and the fleet ask for",
    "PlatformTaskDefinitionIncompatibilityException": "correct the task definition, or cpus and memory_mib",
}


class RunAnswer(Struct, frozen=True):
    """The tasks that were started, and why others were not."""

    tasks: Sequence[TaskRow]
    failures: Sequence[str]


class ServiceRow(Struct, frozen=True):
    """A service: how many tasks it is to have, and has."""

    desired: int
    running: int
    pending: int


class EcsCluster:
    """One cluster. It is connected at the first call."""

    def __init__(self, name: str, within: timedelta = CALL_WITHIN) -> None:
        self._name = name
        self._within = within
        self._service: AwsService | None = None

    async def run(self, request: Mapping[str, Any]) -> RunAnswer:
        """RunTask, at most 10 tasks. Repeated with the same token it starts no more."""
        answer = await self._call("RunTask", **request)
        failures = [str(one.get("reason", "no reason is given")) for one in answer.get("failures", ())]
        return RunAnswer([row_of(task) for task in answer.get("tasks", ())], failures)

    async def find_tasks(self, **where: str) -> list[str]:
        """The ARNs of the tasks that are to run, of a service or of who has started them."""
        found: list[str] = []
        token: dict[str, str] = {}
        while True:
            answer = await self._call("ListTasks", maxResults=AT_ONCE, **where, **token)
            found += answer.get("taskArns", ())
            if not answer.get("nextToken"):
                return found
            token = {"nextToken": answer["nextToken"]}

    async def describe(self, arns: Iterable[str]) -> dict[str, TaskRow]:
        """By ARN. Tasks that stopped about an hour ago, or that ECS does not know yet, are left out."""
        asked, rows = list(arns), []
        for start in range(0, len(asked), AT_ONCE):
            rows += (await self._call("DescribeTasks", tasks=asked[start : start + AT_ONCE])).get("tasks", ())
        return {row.arn: row for row in map(row_of, rows)}

    async def stop(self, arn: str, reason: str) -> None:
        """StopTask: SIGTERM, and SIGKILL after the container's `stopTimeout`. No error if it has gone."""
        try:
            await self._ask("StopTask", task=arn, reason=reason)
        except AwsRefusal as refused:
            if "not found" not in str(refused):
                raise self._unavailable("StopTask", refused) from None

    async def service(self, name: str) -> ServiceRow:
        answer = await self._call("DescribeServices", services=[name])
        found = [one for one in answer.get("services", ()) if one.get("status") != "INACTIVE"]
        if not found:
            raise FleetUnavailable(f"cluster {self._name} has no service {name}: create it, or correct ecs.service")
        (one,) = found
        return ServiceRow(one.get("desiredCount", 0), one.get("runningCount", 0), one.get("pendingCount", 0))

    async def probe(self) -> str:
        """The state of the cluster, such as ACTIVE."""
        service = await self._open()
        try:
            answer = await service.call("DescribeClusters", clusters=[self._name])
        except AwsRefusal as refused:
            raise self._unavailable("DescribeClusters", refused) from None
        found = answer.get("clusters", ())
        if not found:
            raise FleetUnavailable(f"there is no ECS cluster {self._name}: create it, or correct ecs.cluster")
        return str(found[0].get("status", ""))

    async def close(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await service.close()

    async def _call(self, action: str, **arguments: Any) -> dict[str, Any]:
        try:
            return await self._ask(action, **arguments)
        except AwsRefusal as refused:
            raise self._unavailable(action, refused) from None

    async def _ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        service = await self._open()
        return await service.call(action, cluster=self._name, **arguments)

    async def _open(self) -> AwsService:
        if self._service is None:
            self._service = await AwsService.open("ecs", error=FleetUnavailable, deadline=self._within)
        return self._service

    def _unavailable(self, action: str, refused: AwsRefusal) -> FleetUnavailable:
        advice = ADVICE.get(refused.code, "see the message")
        return FleetUnavailable(f"ECS refused {action} in cluster {self._name}: {refused}; {advice}", sent=False)
