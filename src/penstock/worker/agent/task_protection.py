"""Task protection: a busy worker in a service of Amazon ECS is not stopped when the service is scaled in.

Alarms on the depth of a queue see no job that runs: claimed jobs have left the queue. ECS would stop any task then.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

from penstock.http1 import Http1Client, NoAnswer
from penstock.model.clock import Clock, seconds

logger = logging.getLogger("penstock.worker")

PATH = "/task-protection/v1/state"
ANSWER_SECONDS = 2.0
EXPIRY = timedelta(minutes=10)
"""For how long a task is protected at a time: should the worker die, so long at most."""

IDLE_FOR = seconds(5.0)
"""A worker without jobs stays protected for so long: with short jobs ECS would be asked for each of them."""

RETRY_AFTER = seconds(15.0)
CHECK_INTERVAL = seconds(0.5)


class TaskProtection:
    """Protects this task while jobs run. What fails is logged and counted, and hinders no job."""

    def __init__(
        self,
        agent_uri: str,
        busy: Callable[[], bool],
        clock: Clock,
        *,
        expiry: timedelta = EXPIRY,
        idle_for: timedelta = IDLE_FOR,
    ) -> None:
        self._client = Http1Client(agent_uri)
        self._busy = busy
        self._clock = clock
        self._expiry = expiry
        self._idle_for = idle_for
        self._renew_at: float | None = None
        self._busy_at = clock.monotonic()
        self._turn = asyncio.Lock()
        self.failures = 0

    async def before_jobs(self) -> None:
        """To be called with claimed jobs in hand, before the first of them starts."""
        self._busy_at = self._clock.monotonic()
        # An end of the protection that is on its way comes first.
        async with self._turn:
            if self._renew_at is None:
                await self._protect()

    async def step(self) -> None:
        """Refresh the protection of a busy task, or end that of one that has been idle for a while; then wait."""
        async with self._turn:
            now = self._clock.monotonic()
            if self._busy():
                self._busy_at = now
            if self._renew_at is not None:
                if now - self._busy_at >= self._idle_for.total_seconds():
                    await self._end()
                elif now >= self._renew_at:
                    await self._protect()
        await self._clock.sleep(CHECK_INTERVAL)

    async def close(self) -> None:
        await self._client.close()

    async def _protect(self) -> None:
        now = self._clock.monotonic()
        minutes = max(1, round(self._expiry.total_seconds() / 60))
        done = await self._put({"ProtectionEnabled": True, "ExpiresInMinutes": minutes})
        # After a failure it is tried again soon, but not before each job.
        self._renew_at = now + (self._expiry / 2 if done else RETRY_AFTER).total_seconds()

    async def _end(self) -> None:
        await self._put({"ProtectionEnabled": False})
        self._renew_at = None

    async def _put(self, wanted: Mapping[str, object]) -> bool:
        """Whether it was done."""
        body = json.dumps(wanted).encode()
        try:
            headers = {"content-type": "application/json"}
            reply = await self._client.call("PUT", PATH, body, headers, ANSWER_SECONDS)
            wrong = _refusal(reply.status, reply.body)
        except (NoAnswer, TimeoutError) as error:
            wrong = str(error) or type(error).__name__
        if wrong:
            self.failures += 1
            what = "protected" if wanted["ProtectionEnabled"] else "released"
            logger.warning("this ECS task is not %s (failure %d): %s", what, self.failures, wrong)
        return not wrong


def _refusal(status: int, body: bytes) -> str:
    """Why the agent did not do as it was asked; empty if it did."""
    if not 200 <= status < 300:
        return f"the ECS agent answers {status}: {body[:300].decode(errors='replace')}"
    try:
        told = json.loads(body)
    except ValueError:
        return "the ECS agent gave an answer that cannot be read"
    refused = told.get("failure") or told.get("error") if isinstance(told, dict) else None
    return "" if not refused else f"ECS refuses it: {json.dumps(refused)}"
