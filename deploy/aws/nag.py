"""What cdk-nag finds in the stack, and what is accepted of it, each with its reason."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aws_cdk import Acknowledgment, App, Aspects, Validations
from cdk_nag import AwsSolutionsChecks, NagReportFormat

ACCEPTED: Final[dict[tuple[str, str], str]] = {
    ("AwsSolutions-APIG4", "*"): "Penstock checks the API key of every request itself, with its scopes",
    ("AwsSolutions-ECS2", "*"): "the variables are names and addresses; credentials come from the task's role",
    ("AwsSolutions-ECS4", "Cluster"): "container insights cost more than a small system; enable them where wanted",
    ("AwsSolutions-IAM5", "*"): "policies.py takes no wildcard without its reason",
    ("AwsSolutions-S1", "Objects"): "access logs need a second bucket; CloudTrail can tell who reads objects",
    ("AwsSolutions-SQS3", "WakeUps"): "a wake-up that is lost is replaced by the sweep of the next minute",
    ("AwsSolutions-VPC7", "Vpc"): "nothing may connect to a worker; give a VPC of yours where flow logs are required",
}
"""By rule and resource (`*`: every one): why it stays."""

UNUSED_DEFAULT: Final = "the empty default is used only where the condition leaves it out"
ACKNOWLEDGED: Final = {
    "CloudFormation-Validate::F3033": UNUSED_DEFAULT,
    "CloudFormation-Validate::E1151": UNUSED_DEFAULT,
    "CloudFormation-Validate::E1154": UNUSED_DEFAULT,
}
"""What the CDK's own look at the template says in vain: it does not know conditions."""


@dataclass(frozen=True)
class Finding:
    """A rule that a resource does not keep."""

    rule: str
    resource: str
    what: str

    def __str__(self) -> str:
        return f"cdk-nag {self.rule} at {self.resource}: {self.what}"


def watch(app: App) -> None:
    """Have the rules of AwsSolutions looked at while the app is synthesised."""
    checks = AwsSolutionsChecks(verbose=False, reports=True, report_formats=[NagReportFormat.JSON])
    Aspects.of(app).add(checks)
    for rule, reason in ACKNOWLEDGED.items():
        Validations.of(app).acknowledge(Acknowledgment(id=rule, reason=reason))


def read_findings(folder: Path) -> list[Finding]:
    """What a synthesis into this folder found and nothing here accepts; and what is accepted and was not found."""
    [report] = folder.glob("*-NagReport.json")
    lines: list[dict[str, Any]] = json.loads(report.read_text())["lines"]
    found = [
        Finding(line["ruleId"], line["resourceId"].rpartition("/")[2], line["ruleInfo"])
        for line in lines
        if line["compliance"] != "Compliant"
    ]
    used = {key for finding in found for key in _keys(finding) if key in ACCEPTED}
    unused = [Finding(rule, resource, "accepted, and not found") for rule, resource in ACCEPTED.keys() - used]
    return [finding for finding in found if not any(key in ACCEPTED for key in _keys(finding))] + unused


def _keys(finding: Finding) -> tuple[tuple[str, str], ...]:
    return (finding.rule, finding.resource), (finding.rule, "*")
