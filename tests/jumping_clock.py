"""A clock of the machine that a test can put forward."""

from penstock.model.clock import SystemClock


class JumpingClock(SystemClock):
    """Its monotonic time jumps as if the process had been stopped for a while; waits still take real time."""

    def __init__(self) -> None:
        self._jumped = 0.0

    def jump(self, seconds: float) -> None:
        self._jumped += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._jumped
