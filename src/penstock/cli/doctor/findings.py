"""What the doctor reports: findings, each with what to do about it, and how they are printed."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from penstock.cli import style
from penstock.model.errors import MissingExtra
from penstock.model.extras import require


class FindingStatus(StrEnum):
    """`warn` works, but not as well as it could; `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """One thing that was examined: its status, what was found, and what to do if it is not well."""

    name: str
    status: FindingStatus
    found: str
    remedy: str = ""


def ok(name: str, found: str) -> Finding:
    return Finding(name, FindingStatus.OK, found)


def warn(name: str, found: str, remedy: str) -> Finding:
    return Finding(name, FindingStatus.WARN, found, remedy)


def fail(name: str, found: str, remedy: str) -> Finding:
    return Finding(name, FindingStatus.FAIL, found, remedy)


def missing_extra(name: str, extra: str) -> Finding | None:
    """A failure where the extra is not installed; None where it is."""
    try:
        require(extra)
    except MissingExtra as missing:
        return fail(name, missing.missing, missing.remedy)
    return None


def all_well(findings: Sequence[Finding]) -> bool:
    """True if nothing failed."""
    return all(finding.status is not FindingStatus.FAIL for finding in findings)


MARKS = {
    FindingStatus.OK: style.good("ok  "),
    FindingStatus.WARN: style.warned("warn"),
    FindingStatus.FAIL: style.bad("FAIL"),
}


def print_findings(findings: Sequence[Finding]) -> None:
    """One line per finding; below it, what to do."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        style.say(f"{MARKS[finding.status]}  {finding.name:<{width}}  {finding.found}")
        if finding.remedy:
            style.say(f"{'':{width + 8}}{style.dim('→ ' + finding.remedy)}")
