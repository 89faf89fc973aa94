"""What CloudTrail of the emulated cloud has kept: the calls of each role, beside what its policies allow."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from cluster.aws.calls import Call, Use, allowed_uses, call_of, unused, uses_of
from cluster.aws.cloud import STACK, Cloud

PLATFORM: Final = frozenset(
    {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
    }
)
"""What AWS itself calls with the role of a function: for its log, and for the stream that invokes it."""
EMULATED: Final = frozenset({"dynamodb:BatchExecuteStatement"})
"""What only the emulator asks policies about, beside the names of batches."""


class Trail:
    """The calls until now."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._calls = list(_read(cloud.client("cloudtrail")))
        self._keys = cloud.access_keys()

    def uses(self, role: str) -> Counter[Use]:
        """What a role used of what policies allow, and how often."""
        return Counter(use for call in self._calls_of(role) for use in uses_of(call))

    def requests(self, service: str) -> int:
        """How many calls of a service functions and workers made."""
        keys = {key for keys in self._keys.values() for key in keys}
        return sum(call.service == service and call.key in keys for call in self._calls)

    def unused(self, role: str) -> set[str]:
        """What a role is allowed to call and never called."""
        resource = self._cloud.client("cloudformation").describe_stack_resource(
            StackName=STACK, LogicalResourceId=f"{role.capitalize()}Role"
        )
        name = resource["StackResourceDetail"]["PhysicalResourceId"]
        document = self._cloud.client("iam").get_role_policy(RoleName=name, PolicyName="calls")["PolicyDocument"]
        allowed = [one for one in allowed_uses([document]) if not _is_of_others(role, *one)]
        return unused(allowed, self.uses(role))

    def _calls_of(self, role: str) -> Iterator[Call]:
        return (call for call in self._calls if call.key in self._keys[role])


def _is_of_others(role: str, action: str, resources: Any) -> bool:
    """Whether an action is not called by the role's own code; the wake-ups are received by Lambda."""
    received = role == "sweep" and action in {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
    from_wake_ups = received and any("wake-ups" in one for one in resources)
    return action in PLATFORM | EMULATED or action.endswith("Batch") or from_wake_ups


def _read(trail: Any) -> Iterator[Call]:
    following: dict[str, str] = {}
    while True:
        page = trail.lookup_events(MaxResults=50, **following)
        for event in page["Events"]:
            yield call_of(json.loads(event["CloudTrailEvent"]))
        if not page.get("NextToken"):
            return
        following = {"NextToken": page["NextToken"]}
