"""Cursors of events as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.cursor import EventCursor, parse_cursor
from penstock.model.clock import from_millis
from penstock.model.errors import Invalid
from penstock.model.ids import ShardId
from penstock.model.journal import Position

positions = st.builds(Position, st.integers(0, 10**17), st.integers(0, 10**8))
cursors = st.builds(
    EventCursor,
    since=st.integers(0, 10**13).map(from_millis),
    positions=st.dictionaries(st.integers(0, 4095).map(ShardId), positions, max_size=8),
    log=st.integers(0, 10**9),
)


@given(cursors)
def test_a_cursor_is_what_its_text_says(cursor: EventCursor) -> None:
    assert parse_cursor(cursor.text, "after") == cursor


def test_a_cursor_is_short() -> None:
    cursor = EventCursor(from_millis(1_794_962_131_064), {ShardId(0): Position(5123), ShardId(1): Position(88, 3)})
    assert cursor.text == "1794962131064-0.5123-1.88.3"


@pytest.mark.parametrize("text", ["", "x", "1-", "1-0", "1-0.", "1-0.1.", "1-4096.1", "1-l", "1-l5-0.1", "٣", "1\n"])
def test_what_is_no_cursor_is_refused_by_name(text: str) -> None:
    with pytest.raises(Invalid, match="after: not a cursor"):
        parse_cursor(text, "after")
