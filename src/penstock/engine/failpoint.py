"""Places where a test may end the process, to see that nothing is lost between two steps."""

import os

FAILPOINT = "PENSTOCK_FAILPOINT"
"""Names the place at which this process ends itself. Unset, and it should be, nothing happens anywhere."""

STATUS = 86
AFTER_TICK_COMMIT = "after-tick-commit"


def failpoint(place: str) -> None:
    """End the process on the spot, without a word to anyone, if the environment names this place."""
    if os.environ.get(FAILPOINT) == place:
        os._exit(STATUS)
