"""Notices: what is declared once and must be known everywhere. Kept on every shard; of two the newest counts.

Job types, paused queues, API keys, fleets, subscriptions and the shard map are notices. Each is written to every shard,
a reader merges those of all shards, and a shard that was away gets what it missed. So none of it depends on any one.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from penstock.model.clock import from_millis, to_millis

Name = tuple[str, str]

STEP = timedelta(milliseconds=1)


class NoticeKind(StrEnum):
    """What a notice is about. A newer Penstock may have more kinds: unknown ones are stored and passed on."""

    TYPE = "type"
    ALIAS = "alias"
    PAUSE = "pause"
    KEY = "key"
    SHARD = "shard"
    RING = "ring"
    FLEET = "fleet"
    FLEET_RECORD = "fleet_record"
    SUBSCRIPTION = "subscription"


FINAL = frozenset({NoticeKind.KEY})
"""Kinds whose withdrawal is final: a process that did not know of it may have written a newer notice."""


class Notice(Struct, frozen=True):
    """One declaration. `value` is JSON; None withdraws what was declared under this name before.

    `told_at` is in whole milliseconds, as stores keep it, so that writers and readers compare the same instant.
    """

    kind: str
    name: str
    value: bytes | None
    told_at: datetime

    def __post_init__(self) -> None:
        force_setattr(self, "told_at", from_millis(to_millis(self.told_at)))

    @property
    def about(self) -> Name:
        return self.kind, self.name

    def counts_before(self, other: "Notice") -> bool:
        """Whether this is the newer of two about the same name; of two of one instant every process picks the same."""
        return (self.told_at, self.value or b"") > (other.told_at, other.value or b"")


class NoticeChange(Struct, frozen=True):
    """A notice that replaces a known one: refused where a newer one than `known_at` has been written since.

    `known_at` None: none was known.
    """

    notice: Notice
    known_at: datetime | None


def newest(notices: Iterable[Notice]) -> dict[Name, Notice]:
    """The notice that counts for each kind and name.

    A final withdrawal counts even against a newer notice: it is then dated just after that, so that every store keeps
    it.
    """
    found: dict[Name, Notice] = {}
    withdrawn: set[Name] = set()
    for notice in notices:
        known = found.get(notice.about)
        if known is None or notice.counts_before(known):
            found[notice.about] = notice
        if notice.value is None and notice.kind in FINAL:
            withdrawn.add(notice.about)
    for about in withdrawn:
        if found[about].value is not None:
            found[about] = Notice(*about, None, found[about].told_at + STEP)
    return found


def notice_change(
    kind: str, name: str, value: bytes | None, now: datetime, known: Mapping[Name, Notice]
) -> NoticeChange:
    """A change of a known notice. It is dated after the known one, even where clocks disagree."""
    before = known.get((kind, name))
    return NoticeChange(notice(kind, name, value, now, known), None if before is None else before.told_at)


def notice(kind: str, name: str, value: bytes | None, now: datetime, known: Mapping[Name, Notice]) -> Notice:
    """A notice that replaces the known one. It is dated after that, even where clocks disagree."""
    before = known.get((kind, name))
    return Notice(kind, name, value, now if before is None else max(now, before.told_at + STEP))
