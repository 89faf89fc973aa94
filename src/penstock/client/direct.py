"""Whether a file is worth taking to, or from, the object store itself, past the server."""

from datetime import timedelta

from penstock.model.timing import Clock

WORTH_BYTES = 64 * 1024
"""Below this the extra call costs more than the server's passing on of the bytes."""
AGAIN_AFTER = timedelta(minutes=5)


class Direct:
    """Says no for a while after it was of no use: a store that cannot be reached costs a timeout each time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._again_at: float | None = None

    def worth(self, size: int) -> bool:
        return size >= WORTH_BYTES and (self._again_at is None or self._clock.monotonic() >= self._again_at)

    def of_no_use(self) -> None:
        """The server knows no such way, or what it named cannot be reached."""
        self._again_at = self._clock.monotonic() + AGAIN_AFTER.total_seconds()
