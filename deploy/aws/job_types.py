"""The job types of the stack, as types.toml lists them."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

Mode = Literal["autoscaler", "alarms"]

MODES: Final = ("autoscaler", "alarms")
MEMORY_OF_CPU: Final = {
    256: (512, 2048),
    512: (1024, 4096),
    1024: (2048, 8192),
    2048: (4096, 16384),
    4096: (8192, 30720),
    8192: (16384, 61440),
    16384: (32768, 122880),
}
"""The least and the most memory, in MiB, that Fargate gives to so much CPU."""

NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LONGEST_NAME: Final = 40
"""The name of a queue has 80 letters, and the stack's name and `-dead` are part of it."""


class InvalidTypes(Exception):
    """The table cannot be used; the message lists every fault."""


@dataclass(frozen=True)
class JobType:
    """One job type: its queue has its name. `max` workers of this size at most, and none while there is no work."""

    name: str
    cpu: int
    memory: int
    max: int
    mode: Mode

    @property
    def id(self) -> str:
        """The name as a part of CloudFormation's logical ids: letters only."""
        return "".join(part.capitalize() for part in self.name.split("-"))


def read_types(file: Path) -> list[JobType]:
    """The job types of a file, in its order; InvalidTypes if one of them cannot be run."""
    tables = tomllib.loads(file.read_text()).get("aws", {}).get("types", {})
    faults = [fault for name, table in tables.items() for fault in _faults(name, table)]
    faults += _same_ids(tables)
    if not tables:
        faults.append("there is none: add a table such as [aws.types.report]")
    if faults:
        raise InvalidTypes(f"job types in {file}: " + "; ".join(faults))
    return [
        JobType(name=name, cpu=one["cpu"], memory=one["memory"], max=one["max"], mode=cast(Mode, one["mode"]))
        for name, one in tables.items()
    ]


def _faults(name: str, table: dict[str, object]) -> list[str]:
    faults = []
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        faults.append(f"{name!r} is no name for a queue: lower-case letters, digits and -, at most {LONGEST_NAME}")
    if set(table) != {"cpu", "memory", "max", "mode"}:
        return [*faults, f"{name} must have cpu, memory, max and mode, and nothing else"]
    cpu, memory, most, mode = (table[key] for key in ("cpu", "memory", "max", "mode"))
    if mode not in MODES:
        faults.append(f"{name}: mode {mode!r} is none of {', '.join(MODES)}")
    if type(most) is not int or most < 1:
        faults.append(f"{name}: max {most!r} is no number of workers")
    if type(cpu) is not int or type(memory) is not int or cpu not in MEMORY_OF_CPU:
        faults.append(f"{name}: cpu {cpu!r} is none of {', '.join(map(str, MEMORY_OF_CPU))}, or memory is no number")
    elif not MEMORY_OF_CPU[cpu][0] <= memory <= MEMORY_OF_CPU[cpu][1]:
        least, most_memory = MEMORY_OF_CPU[cpu]
        faults.append(f"{name}: with cpu {cpu} memory must be between {least} and {most_memory}, not {memory}")
    return faults


def _same_ids(tables: dict[str, object]) -> list[str]:
    """Names that differ only in their hyphens would be one resource."""
    seen: dict[str, str] = {}
    faults = []
    for name in tables:
        plain = name.replace("-", "")
        if plain in seen:
            faults.append(f"{name} and {seen[plain]} differ only in -")
        seen[plain] = name
    return faults
