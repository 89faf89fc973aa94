"""The cursor of a reader of events: its position in the journal of every shard, as one compact text."""

import re
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from penstock.model.clock import from_millis, to_millis
from penstock.model.errors import Invalid
from penstock.model.ids import ShardId
from penstock.model.journal import Position

SHARD_PATTERN = r"-(?:[0-9]{1,3}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-5])\.[0-9]{1,18}(?:\.[0-9]{1,9})?"
"""A shard, from 0 to 4095, and a position in its journal."""

CURSOR_PATTERN = rf"[0-9]{{1,14}}(?:{SHARD_PATTERN})*(?:-l[0-9]{{1,15}})?"
CURSOR_MAX_LENGTH = 16_384

_is_cursor = re.compile(CURSOR_PATTERN).fullmatch


class EventCursor(Struct, frozen=True):
    """Everything before `positions` is behind the reader; of shards without a position, everything before `since`.

    `log` is a position in the log of a job, for the stream of that job.
    """

    since: datetime
    positions: Mapping[ShardId, Position] = {}
    log: int = 0

    @property
    def text(self) -> str:
        """Milliseconds of `since`, then `shard.number` or `shard.number.index` of each shard, joined by dashes."""
        parts = [f"{shard}.{_position_text(at)}" for shard, at in sorted(self.positions.items())]
        return "-".join((str(to_millis(self.since)), *parts, *((f"l{self.log}",) if self.log else ())))

    def at(self, shard: ShardId, position: Position) -> "EventCursor":
        """The cursor after the reader has come to a position of a shard."""
        return replace(self, positions={**self.positions, shard: position})


def _position_text(at: Position) -> str:
    return f"{at.number}.{at.index}" if at.index else str(at.number)


def parse_cursor(text: str, name: str) -> EventCursor:
    """The cursor of a text; Invalid, naming the parameter or header that it came in, if it is none."""
    if len(text) > CURSOR_MAX_LENGTH or _is_cursor(text) is None:
        raise Invalid(f"{name}: not a cursor; give one that a page or a stream of events gave, or leave it out")
    since, *parts = text.split("-")
    log = int(parts.pop()[1:]) if parts and parts[-1].startswith("l") else 0
    return EventCursor(from_millis(int(since)), dict(map(_parse_position, parts)), log)


def _parse_position(part: str) -> tuple[ShardId, Position]:
    shard, *numbers = map(int, part.split("."))
    return ShardId(shard), Position(*numbers)
