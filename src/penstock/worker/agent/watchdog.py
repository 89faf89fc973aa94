"""In the agent: a look around, often enough that nothing is noticed late."""

from penstock.model.clock import Clock, seconds, within
from penstock.worker.agent.attempts import Attempts
from penstock.worker.agent.executors import Executors

BUSY_INTERVAL = seconds(0.1)
IDLE_INTERVAL = seconds(1.0)
MEMORY_SECONDS = 0.25


class Watchdog:
    """Looks at attempts and executors: ten times a second while there is work, else when something changes."""

    def __init__(self, attempts: Attempts, executors: Executors, clock: Clock) -> None:
        self._attempts = attempts
        self._executors = executors
        self._clock = clock
        self._memory_at = clock.monotonic()

    async def step(self) -> None:
        """Look once, then wait until it is time to look again."""
        self.look()
        if self._attempts.running() or self._executors.unsteady:
            await self._clock.sleep(BUSY_INTERVAL)
        else:
            await within(IDLE_INTERVAL, self._attempts.wait_for_change())

    def look(self) -> None:
        self._attempts.look()
        self._executors.look()
        now = self._clock.monotonic()
        if now >= self._memory_at:
            self._memory_at = now + MEMORY_SECONDS
            self._executors.look_at_memory()
