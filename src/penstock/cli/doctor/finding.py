"""What the doctor says about one thing."""

from enum import StrEnum

from msgspec import Struct


class FindingStatus(StrEnum):
    """`warn` works, but not as well as it could; `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True):
    """One thing looked at: how it is, what was found, and what to do if it is not well."""

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
