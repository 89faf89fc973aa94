"""The bill of AWS for a million jobs and for an idle month, from what was measured and the list prices.

`python -m tools.aws_bill` prints the tables of docs/guides/aws-costs.md. Prices are those of us-east-1, on demand, without any free tier.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

MILLION: Final = 1_000_000
MONTH_HOURS: Final = 730
MONTH_MINUTES: Final = MONTH_HOURS * 60

WRITE_UNIT: Final = 0.625 / MILLION
READ_UNIT: Final = 0.125 / MILLION
QUEUE_REQUEST: Final = 0.40 / MILLION
GATEWAY_REQUEST: Final = 1.00 / MILLION
FUNCTION_REQUEST: Final = 0.20 / MILLION
FUNCTION_GB_SECOND: Final = 0.0000133334
TOPIC_REQUEST: Final = 0.50 / MILLION
SCHEDULER_CALL: Final = 1.00 / MILLION
ALARM_MONTH: Final = 0.10
METRIC_MONTH: Final = 0.30
TASK_VCPU_HOUR: Final = 0.03238
TASK_GB_HOUR: Final = 0.00356
"""Lambda and Fargate on Arm."""

FUNCTION_GB: Final = 0.5
STATES: Final = 3
"""Changes of a plain job: queued, running, succeeded."""


class Life(Struct, frozen=True, kw_only=True):
    """What one job takes on its way: units of DynamoDB, requests of SQS and API Gateway, calls and milliseconds of
    functions, and messages on the topic, of which ten go in one request."""

    name: str
    writes: float
    reads: float
    queue_requests: float
    gateway_requests: float
    function_calls: float
    function_ms: float
    topic_requests: float


SEED: Final = Life(
    name="plain seed 003",
    writes=3.0,
    reads=0.5,
    queue_requests=3.0,
    gateway_requests=1.0,
    function_calls=1.0,
    function_ms=20.0,
    topic_requests=3.0,
)
"""Put, running, done; one send, receive and delete; each change published by itself."""


def dollars(life: Life) -> Iterator[tuple[str, float]]:
    """Dollars for a million jobs, service by service."""
    yield "API Gateway", life.gateway_requests * GATEWAY_REQUEST * MILLION
    function_seconds = life.function_ms / 1000 * FUNCTION_GB * FUNCTION_GB_SECOND
    yield "Lambda", (life.function_calls * FUNCTION_REQUEST + function_seconds) * MILLION
    yield "DynamoDB", (life.writes * WRITE_UNIT + life.reads * READ_UNIT) * MILLION
    yield "SQS", life.queue_requests * QUEUE_REQUEST * MILLION
    yield "SNS", life.topic_requests * TOPIC_REQUEST * MILLION


def table(lives: Sequence[Life]) -> Iterator[str]:
    """The lives beside each other, as Markdown."""
    yield "| $ per million jobs | " + " | ".join(life.name for life in lives) + " |"
    yield "|---|" + "---|" * len(lives)
    for row in zip(*(list(dollars(life)) for life in lives), strict=True):
        yield f"| {row[0][0]} | " + " | ".join(f"{amount:.2f}" for _, amount in row) + " |"
    sums = [sum(amount for _, amount in dollars(life)) for life in lives]
    yield "| **sum** | " + " | ".join(f"**{amount:.2f}**" for amount in sums) + " |"


def main() -> None:
    for line in table([SEED]):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
