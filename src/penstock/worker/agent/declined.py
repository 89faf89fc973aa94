"""In the agent: the types it leaves to other workers for a while, because their jobs do not fit its handlers. Pure."""

from penstock.model.clock import Clock

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 10.0


class Declined:
    """While a deployment rolls, jobs may be for newer or older code than this worker's. It then takes none of that type
    for a while: longer each time, from the start again once one has fitted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spans: dict[str, float] = {}
        self._until: dict[str, float] = {}

    @property
    def any(self) -> bool:
        """Whether there is a type of which a job did not fit, and none has since; or that is left to others still."""
        return bool(self._spans or self._until)

    def given_back(self, type_name: str) -> None:
        """A job of this type did not fit."""
        span = self._spans.get(type_name, FIRST_SECONDS)
        self._spans[type_name] = min(2 * span, LONGEST_SECONDS)
        self._until[type_name] = self._clock.monotonic() + span

    def ran(self, type_name: str) -> None:
        """A job of this type did fit."""
        self._spans.pop(type_name, None)

    def left(self) -> dict[str, float]:
        """The types that are left to others now, and for how many seconds more."""
        if not self._until:
            return {}
        now = self._clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return {name: until - now for name, until in self._until.items()}
