"""The committed template of AWS, as tests look at it."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "deploy" / "aws" / "template.json"

Resource = dict[str, Any]


@cache
def template() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(TEMPLATE.read_text())
    return loaded


def resources(kind: str = "") -> dict[str, Resource]:
    """The properties of every resource of a kind, by logical id."""
    found: dict[str, Resource] = template()["Resources"]
    return {name: one["Properties"] for name, one in found.items() if one["Type"].startswith(kind)}


def statements(role: str) -> Iterator[Resource]:
    """The statements of a role's policies."""
    for policy in resources("AWS::IAM::Role")[role]["Policies"]:
        yield from policy["PolicyDocument"]["Statement"]


def listed(value: object) -> list[Any]:
    """A value of CloudFormation's that may stand alone."""
    return value if isinstance(value, list) else [value]
