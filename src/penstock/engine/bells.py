"""Bells: what happens in one process and is worth a look in the others, at once instead of at their next reading."""

import asyncio
import logging
import struct
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.broker import SignalMessage
from penstock.engine.by_shard import keep
from penstock.model.errors import Unavailable
from penstock.model.ids import JobId, from_packed, to_packed
from penstock.model.job import BacklogKey
from penstock.model.lifecycle import TERMINAL, Event, Move, State

if TYPE_CHECKING:
    from penstock.engine import Engine

logger = logging.getLogger("penstock.engine")

MIN_INTERVAL = timedelta(milliseconds=20)
"""The shortest time between two rings of one bell: what comes in between goes with the next."""

WORK_MIN_INTERVAL = timedelta(milliseconds=100)
"""For queues that got work: the bell that would be rung most often, and is worth least to those who are awake."""

UNKNOWN_QUEUES = frozenset({""})
"""In place of the queues that got work, where rings may have been missed."""

RETRY_PAUSE = timedelta(seconds=1)


class Signal(StrEnum):
    """What can be rung. All of them are hints: whoever misses one looks again a little later by itself."""

    BACKLOG = "backlog"
    NOTICES = "notices"
    SCHEDULES = "schedules"
    CANCELS = "cancels"
    ENDED = "ended"
    WORK = "work"
    LINE = "line"


class Signals:
    """Rings for other processes, and does here what their rings ask for. Silent until it is asked to `listen`.

    With a broker inside the process there is nobody else to ring for.
    """

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._listening = False
        self._ended: list[JobId] = []
        self._work: set[str] = set()
        self._backlogs: set[BacklogKey] = set()
        self._waiting: set[Signal] = set()
        self.cancels = asyncio.Event()

    def publish(self, bell: Signal) -> None:
        """Soon, and once however often it is asked for meanwhile."""
        if self._listening and bell not in self._waiting:
            self._waiting.add(bell)
            keep(asyncio.ensure_future(self._send(bell)))

    def publish_work(self, queues: frozenset[str]) -> None:
        """Tell the others in which queues jobs have become due."""
        if self._listening:
            self._work |= queues
            self.publish(Signal.WORK)

    def publish_backlog(self, lines: frozenset[BacklogKey]) -> None:
        """Tell the others which lines go on behind the window."""
        if self._listening:
            self._backlogs |= lines
            self.publish(Signal.LINE)

    def publish_events(self, events: Sequence[Event]) -> None:
        """Tell the others which jobs have ended and which were asked to stop."""
        if not self._listening:
            return
        if ended := [event.job for event in events if event.after in TERMINAL]:
            self._ended += ended
            self.publish(Signal.ENDED)
        if any(event.move is Move.CANCEL and event.before is State.RUNNING for event in events):
            self.publish(Signal.CANCELS)

    async def listen(self) -> timedelta:
        """Do what rings ask for, until the broker is closed or lost; how long to wait before listening again."""
        self._listening = True
        async for rung in self._engine.broker.listen(tuple(Signal)):
            try:
                self._receive(rung)
            except (ValueError, struct.error) as error:
                # Of another version perhaps: a hint that is not understood is a hint that was missed.
                logger.debug("a ring of the bell %s cannot be read: %s", rung.signal, error)
        return RETRY_PAUSE

    async def _send(self, bell: Signal) -> None:
        await self._engine.clock.sleep(WORK_MIN_INTERVAL if bell is Signal.WORK else MIN_INTERVAL)
        self._waiting.discard(bell)
        try:
            await self._engine.broker.send_signal(bell, self._message(bell))
        except Unavailable as error:
            logger.debug("nobody heard the bell %s: %s", bell, error)

    def _message(self, bell: Signal) -> bytes:
        message = b""
        if bell is Signal.ENDED:
            message, self._ended = to_packed(self._ended), []
        elif bell is Signal.WORK:
            message, self._work = _encode(self._work), set()
        elif bell is Signal.LINE:
            message, self._backlogs = _encode(self._backlogs), set()
        return message

    def _receive(self, rung: SignalMessage) -> None:
        match rung.signal:
            case Signal.BACKLOG:
                self._engine.tickets.wake.set()
            case Signal.NOTICES:
                self._engine.catalog.forget()
                self._engine.tickets.pauses_changed()
            case Signal.SCHEDULES:
                self._engine.changes.receive()
            case Signal.CANCELS:
                self.cancels.set()
            case Signal.ENDED:
                self._engine.job_waiters.wake(from_packed(rung.message))
                self._engine.changes.observe_ended(from_packed(rung.message))
            case Signal.WORK:
                self._engine.arrivals.receive(_queues(rung.message) if rung.message else UNKNOWN_QUEUES)
            case Signal.LINE:
                self._engine.tickets.receive_backlog(_lines(rung.message or b"[]"))


_encode = msgspec.json.Encoder().encode
_queues = msgspec.json.Decoder(frozenset[str]).decode
_lines = msgspec.json.Decoder(list[BacklogKey]).decode
