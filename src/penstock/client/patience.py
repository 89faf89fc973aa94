"""How long a client goes on asking a server that is unavailable, where its user has not said so."""

import math
import os
from datetime import timedelta

from penstock.client.direct import in_executor
from penstock.model.errors import Invalid

VARIABLE = "PENSTOCK_PATIENCE"

SHORT = timedelta(seconds=5)
"""What a web request bears: longer than the restart of a server, and over before a proxy or a person gives up."""
LONG = timedelta(seconds=30)
"""In a handler: nothing but its own job waits for it."""


def default_patience() -> timedelta:
    """PENSTOCK_PATIENCE, in seconds; else LONG in a handler and SHORT elsewhere."""
    told = os.environ.get(VARIABLE, "")
    if not told:
        return LONG if in_executor() else SHORT
    try:
        given = float(told)
    except ValueError:
        given = math.nan
    if not 0 <= given <= timedelta.max.total_seconds():
        raise Invalid(f"{VARIABLE}: expected a number of seconds, such as 5, not {told!r}")
    return timedelta(seconds=given)
