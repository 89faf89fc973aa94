"""Notices: what is declared once and must be known everywhere. Kept on every shard; of two the newest counts.

Job types, paused queues, API keys, fleets and the shard map are notices. Each shard keeps what it is told, whoever
reads merges what the shards say, and a shard that was away is told what it missed. So none of it depends on any one
shard.
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
    """What a notice is about. A newer Penstock may know more: what is not known is kept and passed on."""

    TYPE = "type"
    ALIAS = "alias"
    PAUSE = "pause"
    KEY = "key"
    SHARD = "shard"
    RING = "ring"
    FLEET = "fleet"
    FLEET_RECORD = "fleet_record"


FINAL = frozenset({NoticeKind.KEY})
"""What is withdrawn of these is so for good: a process that could not know it may have told something newer."""


class Notice(Struct, frozen=True):
    """One declaration. `value` is JSON; None withdraws what was declared under this name before.

    `told_at` is in whole milliseconds, as stores keep it: whoever told it and those who read it must see the same.
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
        """Whether this one is the newer of two about the same; of two told at one instant, one for everybody."""
        return (self.told_at, self.value or b"") > (other.told_at, other.value or b"")


class NoticeChange(Struct, frozen=True):
    """A notice that was decided on what was known: refused where something newer than `known_at` has been told since.

    `known_at` None: nothing was known about it.
    """

    notice: Notice
    known_at: datetime | None


def newest(notices: Iterable[Notice]) -> dict[Name, Notice]:
    """Of all that is said about each name, what counts.

    What was withdrawn for good stays so, also where it was told before the newest: then it counts as told just after
    that, so that every store keeps it.
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
    """A change of what is known about a name: it counts before that, even where clocks disagree."""
    before = known.get((kind, name))
    return NoticeChange(notice(kind, name, value, now, known), None if before is None else before.told_at)


def notice(kind: str, name: str, value: bytes | None, now: datetime, known: Mapping[Name, Notice]) -> Notice:
    """A notice that counts before what is known, even where clocks disagree."""
    before = known.get((kind, name))
    return Notice(kind, name, value, now if before is None else max(now, before.told_at + STEP))
