"""Settings from three places: file < environment < flags. The later place wins, and all faults are told at once."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from msgspec import Struct, ValidationError, convert, field
from msgspec.inspect import BoolType, FloatType, IntType, LiteralType, Metadata, Type, VarTupleType, type_info

from penstock.config.fleet_settings import TaskTable
from penstock.config.settings import Settings
from penstock.config.tables import (
    FLEETS,
    SUBSCRIPTIONS,
    TABLES,
    TASKS,
    SubscriptionTable,
    read_fleets,
    read_subscriptions,
    read_tasks,
)
from penstock.model.errors import InvalidSetting
from penstock.model.text import suggest

FILE_NAME = "penstock.toml"
FILE_VARIABLE = "PENSTOCK_CONFIG"
TEXT_VARIABLE = "PENSTOCK_CONFIG_TEXT"
"""Holds the text of a file, for processes that get no file of ours: functions, tasks."""
PREFIX = "PENSTOCK_"
ALIASES = {"PENSTOCK_URL": "worker.url", "PENSTOCK_KEY": "worker.key"}
"""Short names of settings that are wanted often; the full name wins where both are set."""

PAID_SCHEMES = frozenset({"dynamodb", "sqs"})
PAID_TIMING = {"dispatch_seconds": 5.0, "observe_seconds": 5.0, "catalog_seconds": 5.0, "depths_seconds": 2.0}
"""The defaults under `timing` with a store or a broker whose calls are paid for one by one."""
SQS_DEADLINE = 5.0
"""A call to AWS connects, and is tried again, within this time."""

SECTIONS: dict[str, type[Struct]] = {
    name: kind for name, kind in get_type_hints(Settings).items() if name not in TABLES
}
SECTION_PREFIXES = tuple(f"{PREFIX}{section.upper()}_" for section in SECTIONS)
FIELDS: dict[str, Any] = {
    f"{section}.{name}": annotation
    for section, struct in SECTIONS.items()
    for name, annotation in get_type_hints(struct, include_extras=True).items()
}
"""Every setting by its full name (`server.port`), with its annotated type."""


class Given(Struct, frozen=True):
    """A value for one setting and the place it came from. `text` values are read as the setting's own type."""

    setting: str
    value: object
    origin: str
    text: bool = False


class Fault(Struct, frozen=True):
    """One line about what cannot be used: where it came from, which setting, what is wrong, what is accepted."""

    origin: str
    setting: str
    wrong: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.origin, self.setting, self.wrong) if part)


class SettingsReading(Struct):
    """What one place gave, usable or not."""

    given: list[Given] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    fleets: dict[str, dict[str, Any]] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionTable] = field(default_factory=dict)
    tasks: dict[str, TaskTable] = field(default_factory=dict)


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """The settings in force. `flags` are keyed by full name (`server.port`); None stands for a flag not given.

    Without `file`, PENSTOCK_CONFIG names it, or PENSTOCK_CONFIG_TEXT is its text, or it is `penstock.toml` in the
    current folder if there is one.
    Raises InvalidSetting with every fault of every place.
    """
    readings = [_read_file(file, environ), _read_environment(environ), _read_flags(flags)]
    faults = list(chain.from_iterable(reading.faults for reading in readings))
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    origins: dict[str, str] = {}
    for given in chain.from_iterable(reading.given for reading in readings):
        try:
            _place(values, given)
            origins[given.setting] = given.origin
        except ValidationError:
            wrong = f"{given.value!r} cannot be used; accepted: {accepted(given.setting)}"
            faults.append(Fault(given.origin, given.setting, wrong))
    if faults:
        raise _invalid(faults)
    _default_for_paid(values)
    from_file, *_ = readings
    tables = {FLEETS: from_file.fleets, SUBSCRIPTIONS: from_file.subscriptions, TASKS: from_file.tasks}
    settings = convert(values | tables, Settings)
    if broken := list(_relations(settings, origins)):
        raise _invalid(broken)
    return settings


def _default_for_paid(values: dict[str, dict[str, object]]) -> None:
    """Look less often where each look is paid for, unless the user says how often."""
    urls: list[object] = [values["broker"].get("url", ""), values["store"].get("url", "")]
    shards = values["store"].get("shards", ())
    urls += [str(entry).partition("=")[2] for entry in shards] if isinstance(shards, Sequence) else []
    if any(urlsplit(str(url)).scheme in PAID_SCHEMES for url in urls):
        values["timing"] = {**PAID_TIMING, **values["timing"]}
    if urlsplit(str(urls[0])).scheme == "sqs":
        values["broker"] = {"deadline_seconds": SQS_DEADLINE, **values["broker"]}


def accepted(setting: str) -> str:
    """In words, what a setting may be."""
    match _kind(setting):
        case BoolType():
            return "true or false"
        case IntType() | FloatType() as number:
            noun = "a whole number" if isinstance(number, IntType) else "a number"
            return noun + _range(number.ge, number.gt, number.le)
        case LiteralType(values=values):
            return " or ".join(map(str, values))
        case VarTupleType():
            return "a list of texts; in the environment, with commas or line breaks between them"
        case _:
            return "text"


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + setting.upper().replace(".", "_")


def is_setting(name: str) -> bool:
    """Whether an environment variable gives a setting, under any name, or the file that holds them."""
    return name in ALIASES or name in {FILE_VARIABLE, TEXT_VARIABLE} or name.startswith(SECTION_PREFIXES)


def _kind(setting: str) -> Type:
    known = type_info(FIELDS[setting])
    return known.type if isinstance(known, Metadata) else known


def _read_file(file: Path | None, environ: Mapping[str, str]) -> SettingsReading:
    path, needed = _file(file, environ)
    if TEXT_VARIABLE in environ and not needed:
        return _read_text(TEXT_VARIABLE, environ[TEXT_VARIABLE])
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return SettingsReading(faults=[Fault(str(path), "", "there is no such file")] if needed else [])
    except OSError as error:
        return SettingsReading(faults=[Fault(str(path), "", f"cannot be read: {error.strerror}")])
    except UnicodeDecodeError as error:
        return SettingsReading(faults=[Fault(str(path), "", f"is not TOML: {error}")])
    return _read_text(str(path), text)


def _read_text(origin: str, text: str) -> SettingsReading:
    try:
        return _read_sections(origin, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        return SettingsReading(faults=[Fault(origin, "", f"is not TOML: {error}")])


def _file(file: Path | None, environ: Mapping[str, str]) -> tuple[Path, bool]:
    """Which file, and whether it has to be there."""
    if file is not None:
        return file, True
    named = environ.get(FILE_VARIABLE)
    return (Path(named), True) if named else (Path(FILE_NAME), False)


def _read_sections(origin: str, content: Mapping[str, object]) -> SettingsReading:
    reading = SettingsReading()
    for section, fields in content.items():
        if section in TABLES:
            _read_tables(reading, origin, section, fields)
        elif section not in SECTIONS:
            known = (*SECTIONS, *TABLES)
            reading.faults.append(Fault(origin, f"[{section}]", _unknown("section", section, known)))
        elif not isinstance(fields, dict):
            reading.faults.append(Fault(origin, section, f"is a section; write [{section}] and its settings below"))
        else:
            _read_section(reading, origin, section, fields)
    return reading


def _read_tables(reading: SettingsReading, origin: str, group: str, tables: object) -> None:
    if group == FLEETS:
        reading.fleets, faults = read_fleets(tables)
    elif group == TASKS:
        reading.tasks, faults = read_tasks(tables)
    else:
        reading.subscriptions, faults = read_subscriptions(tables)
    reading.faults += [Fault(origin, name, wrong) for name, wrong in faults]


def _read_section(reading: SettingsReading, origin: str, section: str, fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        if (setting := f"{section}.{name}") in FIELDS:
            reading.given.append(Given(setting, value, origin))
        else:
            known = SECTIONS[section].__struct_fields__
            reading.faults.append(Fault(origin, setting, _unknown("setting", name, known)))


def _read_environment(environ: Mapping[str, str]) -> SettingsReading:
    names = {variable(setting): setting for setting in FIELDS}
    reading = SettingsReading()
    for alias, setting in ALIASES.items():
        if alias in environ:
            reading.given.append(Given(setting, environ[alias], alias, text=True))
    for name, value in sorted(environ.items()):
        if name in names:
            reading.given.append(Given(names[name], value, name, text=True))
        elif name.startswith(SECTION_PREFIXES):
            reading.faults.append(Fault(name, "", _unknown("variable", name, names)))
    return reading


def _read_flags(flags: Mapping[str, object]) -> SettingsReading:
    return SettingsReading([Given(name, value, "command line") for name, value in flags.items() if value is not None])


def _place(values: dict[str, dict[str, object]], given: Given) -> None:
    section, _, name = given.setting.partition(".")
    value = given.value
    if given.text and isinstance(_kind(given.setting), VarTupleType):
        # Lines where there are several, so that what holds commas can be given too.
        separator = "\n" if "\n" in str(value) else ","
        value = [word.strip() for word in str(value).split(separator) if word.strip()]
    values[section][name] = convert(value, FIELDS[given.setting], strict=not given.text)


def _relations(settings: Settings, origins: Mapping[str, str]) -> Iterator[Fault]:
    """What is wrong between settings that are fine by themselves."""
    timing = settings.timing
    if timing.heartbeat_seconds >= timing.lease_seconds:
        origin = origins.get("timing.heartbeat_seconds") or origins.get("timing.lease_seconds", "")
        wrong = f"{timing.heartbeat_seconds:g} is not below timing.lease_seconds ({timing.lease_seconds:g})"
        yield Fault(origin, "timing.heartbeat_seconds", f"{wrong}: leases would be lost between two heartbeats")
    if settings.fleet.min > settings.fleet.max:
        origin = origins.get("fleet.min") or origins.get("fleet.max", "")
        yield Fault(origin, "fleet.min", f"{settings.fleet.min} is above fleet.max ({settings.fleet.max})")
    if settings.subscriptions and not settings.events.keep:
        yield Fault(origins.get("events.keep", ""), "events.keep", "is false, and [subscriptions.…] need the journal")
    yield from (_network_fault(text, origins) for text in settings.webhooks.allow if not _is_network(text))
    try:
        _ = settings.worker.deployed
    except ValueError as error:
        wrong = f"{error}; accepted: an instant such as 2026-01-31T12:00:00Z"
        yield Fault(origins.get("worker.deployed_at", ""), "worker.deployed_at", wrong)
    url = urlsplit(settings.worker.url)
    if url.scheme not in {"http", "https"} or not url.netloc:
        wrong = f"{settings.worker.url!r} is not a server; accepted: a URL such as http://127.0.0.1:7373"
        yield Fault(origins.get("worker.url", ""), "worker.url", wrong)


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def _network_fault(text: str, origins: Mapping[str, str]) -> Fault:
    wrong = f"{text!r} is not a network; accepted: networks such as 10.0.0.0/8 or fd00::/8, without bits of a host"
    return Fault(origins.get("webhooks.allow", ""), "webhooks.allow", wrong)


def _invalid(faults: Sequence[Fault]) -> InvalidSetting:
    lines = [str(fault) for fault in faults]
    if len(lines) == 1:
        return InvalidSetting(f"a setting cannot be used: {lines[0]}", faults=lines)
    listed = "".join(f"\n  {line}" for line in lines)
    return InvalidSetting(f"{len(lines)} settings cannot be used:{listed}", faults=lines)


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {kind}; {suggest(name, known)}"


def _range(ge: float | None, gt: float | None, le: float | None) -> str:
    low = f" from {ge:g}" if ge is not None else f" above {gt:g}" if gt is not None else ""
    return low + (f" to {le:g}" if le is not None else "")
