"""Settings of the run that are not the defaults on AWS: a run takes minutes, and its faults must be over in seconds."""

from typing import Final

WAITS: Final = {
    # A ticket that the purge deleted is posted again after this; the default is 5 minutes, as it costs writes.
    "PENSTOCK_TIMING_REDELIVERED_TICKET_SECONDS": "10",
}
FUNCTION_ENVIRON: Final = {**WAITS, "PENSTOCK_SERVER_ALLOW_UNKNOWN_TYPES": "true"}
WORKER_ENVIRON: Final = {**WAITS, "PENSTOCK_WORKER_EXECUTORS": "1", "PENSTOCK_WORKER_CAPACITY": "4"}
