"""Wake-ups of the sweep: delayed messages to the queue that invokes it, so that it need not run to find nothing.

A wake-up is a hint: one that is lost is made up for by the sweep of the next minute. However many functions want the
same one, it is sent once: instants are rounded up to a multiple of SPACING, and a role of the store names the sender.
"""

import logging
import math
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from penstock.aws import AwsRefusal, AwsService
from penstock.model.clock import EPOCH, Clock, seconds
from penstock.model.errors import BrokerUnavailable, Unavailable
from penstock.model.job import NewJob
from penstock.store.registry import Registry

logger = logging.getLogger("penstock.functions")

SPACING: Final = seconds(2)
HORIZON: Final = seconds(60)
"""How far ahead wake-ups are sent: what is due later is found by the sweeps of the minutes before."""
DEADLINE: Final = seconds(3)
_ROLES: Final = 64
"""Roles are used again after so many spacings: longer than the horizon, when each has long run out."""
BODY: Final = '{"wake": "sweep"}'


def rounded_up(at: datetime) -> int:
    """The number of the first multiple of SPACING that is not before an instant."""
    return math.ceil((at - EPOCH) / SPACING)


class Arrivals:
    """The earliest instant at which one of the jobs falls due that were added since the last look."""

    def __init__(self) -> None:
        self._now = False
        self._delay: timedelta | None = None
        self._at: datetime | None = None

    def note(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            if job.due_at is not None:
                self._at = job.due_at if self._at is None else min(self._at, job.due_at)
            elif job.delay is not None:
                self._delay = job.delay if self._delay is None else min(self._delay, job.delay)
            else:
                self._now = True

    def take(self, now: datetime) -> datetime | None:
        """That instant, never before `now`; None if no job was added."""
        known = [now] if self._now else []
        known += [] if self._delay is None else [now + self._delay]
        known += [] if self._at is None else [max(now, self._at)]
        self._now, self._delay, self._at = False, None, None
        return min(known, default=None)


class WakeUpQueue:
    """Sends wake-ups to one SQS queue, which is connected to at the first one."""

    def __init__(self, roles: Registry, clock: Clock, url: str) -> None:
        self._roles = roles
        self._clock = clock
        self._url = url
        self._service: AwsService | None = None
        self._latest = -1

    async def request(self, at: datetime | None) -> timedelta | None:
        """Have the sweep run at an instant, or up to SPACING after it; how soon. None: not within HORIZON, or not sent.

        Never raises: jobs are safe in the store, and the sweep comes each minute anyway.
        """
        now = self._clock.now()
        if at is None or at - now > HORIZON:
            return None
        turn = rounded_up(max(at, now))
        delay = EPOCH + turn * SPACING - now
        if turn == self._latest:
            return delay
        try:
            await self._send(turn, delay)
        except (Unavailable, AwsRefusal) as error:
            logger.warning("the sweep is not woken before its minute: %s", error)
            return None
        self._latest = turn
        return delay

    async def close(self) -> None:
        if self._service is not None:
            await self._service.close()

    async def _send(self, turn: int, delay: timedelta) -> None:
        role, holder = f"wake-up/{turn % _ROLES}", secrets.token_hex(8)
        if await self._roles.acquire_role(role, holder, delay + SPACING) is None:
            return
        if self._service is None:
            self._service = await AwsService.open("sqs", error=BrokerUnavailable, deadline=DEADLINE)
        try:
            await self._service.call(
                "SendMessage", QueueUrl=self._url, MessageBody=BODY, DelaySeconds=math.ceil(delay.total_seconds())
            )
        except BaseException:
            await self._roles.release_role(role, holder)
            raise
