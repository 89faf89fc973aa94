"""The queues: tickets of each job type with their dead letters, and the wake-ups of the sweep."""

from typing import Final

from aws_cdk import Aws, Stack
from aws_cdk import aws_sqs as sqs

from deploy.aws.job_types import JobType
from deploy.aws.storage import only_encrypted

TICKET_SECONDS: Final = 30
"""How long a worker has to claim the job of a ticket, before another gets the ticket."""

RECEIVES: Final = 10
"""A ticket that was received so often and never deleted is a dead letter. Its job is not: the sweep posts another."""

TICKETS_KEPT: Final = 960
"""A minute longer than a ticket is out: then another is posted, and this one would be a double."""

DEAD_KEPT: Final = 1_209_600
WAKE_UPS_KEPT: Final = 900
SWEEP_SECONDS: Final = 60


class Queues:
    """Queues by job type; `wake_ups` invokes the sweep.

    `STACK-TYPE` is the broker's name for the queue of a type; queues of other things are named otherwise.
    """

    def __init__(self, stack: Stack, job_types: list[JobType]) -> None:
        self._stack = stack
        self.dead: dict[str, sqs.CfnQueue] = {}
        self.tickets: dict[str, sqs.CfnQueue] = {}
        for one in job_types:
            self.dead[one.name] = dead = self._queue(f"{one.id}DeadLetters", f"_dead_{one.name}", DEAD_KEPT)
            self.tickets[one.name] = self._queue(
                f"{one.id}Tickets",
                f"-{one.name}",
                TICKETS_KEPT,
                seconds=TICKET_SECONDS,
                redrive={"deadLetterTargetArn": dead.attr_arn, "maxReceiveCount": RECEIVES},
            )
        # A wake-up that fails is not sent again: the next sweep comes within a minute.
        self.wake_ups = self._queue("WakeUps", "_wake-ups", WAKE_UPS_KEPT, seconds=6 * SWEEP_SECONDS)

    def _queue(
        self, name: str, end: str, kept: int, *, seconds: int = 30, redrive: dict[str, object] | None = None
    ) -> sqs.CfnQueue:
        queue = sqs.CfnQueue(
            self._stack,
            name,
            queue_name=f"{Aws.STACK_NAME}{end}",
            message_retention_period=kept,
            visibility_timeout=seconds,
            redrive_policy=redrive,
            sqs_managed_sse_enabled=True,
        )
        sqs.CfnQueuePolicy(
            self._stack,
            f"{name}Policy",
            queues=[queue.ref],
            policy_document=only_encrypted("sqs:*", queue.attr_arn),
        )
        return queue
