"""From how an attempt ended to what becomes of its job. Pure."""

import random

from msgspec.structs import replace

from penstock.model.job import LOSSES, NEVER_RETRIED, Job, JobError, Settlement
from penstock.model.lifecycle import POISON_LOSSES, State

POISON = "poison"


def settle_error(job: Job, fence: int, error: JobError, rng: random.Random) -> Settlement:
    """An attempt that errored: tried again after a wait, or failed.

    Everything this reads of the job cannot change while the fence holds, so the settle's own guard makes it safe.
    """
    again = may_retry(job, error)
    error = replace(error, attempt=job.attempt, error_bases=())
    loss = error.code in LOSSES
    poison = loss and job.losses + 1 >= POISON_LOSSES
    if poison or not again:
        reason = POISON if poison else str(error.code)
        return Settlement(job=job.id, fence=fence, state=State.FAILED, error=error, reason=reason, loss=loss)
    wait = job.retry.wait_after(job.attempt, rng)
    return Settlement(job=job.id, fence=fence, state=State.SCHEDULED, error=error, retry_in=wait, loss=loss)


def may_retry(job: Job, error: JobError) -> bool:
    """True while attempts are left and neither the error nor the policy forbids another one."""
    forbidden = error.error_class is not None and job.retry.forbids(error.error_class, *error.error_bases)
    final = forbidden or not error.retryable or error.code in NEVER_RETRIED
    return not final and job.attempt < job.retry.max_attempts
