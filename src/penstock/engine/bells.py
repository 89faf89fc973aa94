"""Bells: what happens in one process and is worth a look in the others, at once instead of at their next reading."""

import asyncio
import logging
import struct
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.broker import Rung
from penstock.engine.by_shard import keep
from penstock.model.errors import Unavailable
from penstock.model.ids import JobId, from_packed, to_packed
from penstock.model.job import Line
from penstock.model.lifecycle import TERMINAL, Event, Move, State

if TYPE_CHECKING:
    from penstock.engine import Engine

logger = logging.getLogger("penstock.engine")

APART = timedelta(milliseconds=20)
"""The shortest time between two rings of one bell: what comes in between goes with the next."""

WORK_APART = timedelta(milliseconds=100)
"""For queues that got work: the bell that would be rung most often, and is worth least to those who are awake."""

MISSED = frozenset({""})
"""In place of the queues that got work, where rings may have been missed."""

AFTER_TROUBLE = timedelta(seconds=1)


class Bell(StrEnum):
    """What can be rung. All of them are hints: whoever misses one looks again a little later by itself."""

    BACKLOG = "backlog"
    NOTICES = "notices"
    SCHEDULES = "schedules"
    CANCELS = "cancels"
    ENDED = "ended"
    WORK = "work"
    LINE = "line"


class Bells:
    """Rings for other processes, and does here what their rings ask for. Silent until it is asked to `listen`.

    With a broker inside the process there is nobody else to ring for.
    """

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._listening = False
        self._ended: list[JobId] = []
        self._work: set[str] = set()
        self._lines: set[Line] = set()
        self._waiting: set[Bell] = set()
        self.cancels = asyncio.Event()

    def ring(self, bell: Bell) -> None:
        """Soon, and once however often it is asked for meanwhile."""
        if self._listening and bell not in self._waiting:
            self._waiting.add(bell)
            keep(asyncio.ensure_future(self._ring(bell)))

    def ring_work(self, queues: frozenset[str]) -> None:
        """Tell the others in which queues jobs have become due."""
        if self._listening:
            self._work |= queues
            self.ring(Bell.WORK)

    def ring_line(self, lines: frozenset[Line]) -> None:
        """Tell the others which lines go on behind the window."""
        if self._listening:
            self._lines |= lines
            self.ring(Bell.LINE)

    def heed(self, events: Sequence[Event]) -> None:
        """Tell the others which jobs have ended and which were asked to stop."""
        if not self._listening:
            return
        if ended := [event.job for event in events if event.after in TERMINAL]:
            self._ended += ended
            self.ring(Bell.ENDED)
        if any(event.move is Move.CANCEL and event.before is State.RUNNING for event in events):
            self.ring(Bell.CANCELS)

    async def listen(self) -> timedelta:
        """Do what rings ask for, until the broker is closed or lost; how long to wait before listening again."""
        self._listening = True
        async for rung in self._engine.broker.listen(tuple(Bell)):
            try:
                self._hear(rung)
            except (ValueError, struct.error) as fault:
                # Of another version perhaps: a hint that is not understood is a hint that was missed.
                logger.debug("a ring of the bell %s cannot be read: %s", rung.bell, fault)
        return AFTER_TROUBLE

    async def _ring(self, bell: Bell) -> None:
        await self._engine.clock.sleep(WORK_APART if bell is Bell.WORK else APART)
        self._waiting.discard(bell)
        try:
            await self._engine.broker.ring(bell, self._message(bell))
        except Unavailable as trouble:
            logger.debug("nobody heard the bell %s: %s", bell, trouble)

    def _message(self, bell: Bell) -> bytes:
        message = b""
        if bell is Bell.ENDED:
            message, self._ended = to_packed(self._ended), []
        elif bell is Bell.WORK:
            message, self._work = _encode(self._work), set()
        elif bell is Bell.LINE:
            message, self._lines = _encode(self._lines), set()
        return message

    def _hear(self, rung: Rung) -> None:
        match rung.bell:
            case Bell.BACKLOG:
                self._engine.tickets.wake.set()
            case Bell.NOTICES:
                self._engine.catalog.forget()
                self._engine.tickets.pauses_changed()
            case Bell.SCHEDULES:
                self._engine.changes.heard()
            case Bell.CANCELS:
                self.cancels.set()
            case Bell.ENDED:
                self._engine.watch.ended(from_packed(rung.message))
                self._engine.changes.ended(from_packed(rung.message))
            case Bell.WORK:
                self._engine.arrivals.heard(_queues(rung.message) if rung.message else MISSED)
            case Bell.LINE:
                self._engine.tickets.hear(_lines(rung.message or b"[]"))


_encode = msgspec.json.Encoder().encode
_queues = msgspec.json.Decoder(frozenset[str]).decode
_lines = msgspec.json.Decoder(list[Line]).decode
