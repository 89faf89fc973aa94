"""The bill of AWS for a million jobs and for an idle month, from what was measured and the list prices.

`python -m tools.aws_bill` prints the tables of docs/guides/aws-costs.md; with `--write` it puts them there. Prices are
those of us-east-1, on demand, without any free tier; Lambda and Fargate on Arm.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

GUIDE: Final = Path(__file__).resolve().parents[1] / "docs" / "guides" / "aws-costs.md"

MILLION: Final = 1_000_000
MONTH_HOURS: Final = 730

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

FUNCTION_GB: Final = 0.5


class Life(Struct, frozen=True, kw_only=True):
    """What one job takes: units of DynamoDB, requests of other services, and calls and milliseconds of functions."""

    name: str
    writes: float
    reads: float
    queue_requests: float
    gateway_requests: float = 1.0
    function_calls: float = 1.0
    function_ms: float
    topic_requests: float


PLAIN: Final = Life(name="plain loop", writes=3.0, reads=0.5, queue_requests=3.0, function_ms=20.0, topic_requests=3.0)
WITHOUT_JOURNAL: Final = Life(
    name="Penstock without the journal",
    writes=7.0,
    reads=1.0,
    queue_requests=1.25,
    function_ms=25.0,
    topic_requests=0.0,
)
ONE_PASS: Final = structs.replace(
    WITHOUT_JOURNAL, name="with it, changes told together", writes=10.2, reads=2.1, topic_requests=0.3
)
PASS_PER_CHANGE: Final = structs.replace(
    ONE_PASS, name="with it, each change by itself", writes=16.3, reads=4.1, topic_requests=3.0
)
LIVES: Final = (PLAIN, WITHOUT_JOURNAL, ONE_PASS, PASS_PER_CHANGE)

SWEEP_MS: Final = 150.0
IDLE_SWEEP_READS: Final = 12.0
IDLE_SWEEP_WRITES: Final = 1.0
ALARMS_PER_TYPE: Final = 3
METRICS_PER_TYPE: Final = 3


def dollars(life: Life) -> Iterator[tuple[str, float]]:
    """Dollars for a million jobs, service by service."""
    yield "API Gateway", life.gateway_requests * GATEWAY_REQUEST * MILLION
    yield "Lambda", life.function_calls * _invocation(life.function_ms) * MILLION
    yield "DynamoDB", (life.writes * WRITE_UNIT + life.reads * READ_UNIT) * MILLION
    yield "SQS", life.queue_requests * QUEUE_REQUEST * MILLION
    yield "SNS", life.topic_requests * TOPIC_REQUEST * MILLION


def _invocation(ms: float) -> float:
    return FUNCTION_REQUEST + ms / 1000 * FUNCTION_GB * FUNCTION_GB_SECOND


def life_table(lives: Sequence[Life]) -> Iterator[str]:
    yield "| $ per million jobs | " + " | ".join(life.name for life in lives) + " |"
    yield "|---|" + "---|" * len(lives)
    for row in zip(*(list(dollars(life)) for life in lives), strict=True):
        yield f"| {row[0][0]} | " + " | ".join(f"{amount:.2f}" for _, amount in row) + " |"
    sums = [sum(amount for _, amount in dollars(life)) for life in lives]
    yield "| **sum** | " + " | ".join(f"**{amount:.2f}**" for amount in sums) + " |"


def unit_table(lives: Sequence[Life]) -> Iterator[str]:
    yield "| | write units | read units | requests of SQS | requests of SNS |"
    yield "|---|---|---|---|---|"
    for life in lives:
        counts = (life.writes, life.reads, life.queue_requests, life.topic_requests)
        yield f"| {life.name} | " + " | ".join(f"{count:g}" for count in counts) + " |"


def idle_table() -> Iterator[str]:
    """The parts of an idle month, and what other ways would cost."""
    sweeps = MONTH_HOURS * 60
    looks = IDLE_SWEEP_READS * READ_UNIT + IDLE_SWEEP_WRITES * WRITE_UNIT
    parts = {
        "the sweep each minute: Lambda": sweeps * _invocation(SWEEP_MS),
        "… EventBridge Scheduler": sweeps * SCHEDULER_CALL,
        "… its looks at the table": sweeps * looks,
    }
    busy = MONTH_HOURS * 3600 / 5
    task = MONTH_HOURS * (0.25 * TASK_VCPU_HOUR + 0.5 * TASK_GB_HOUR)
    yield "| a month | $ |"
    yield "|---|---|"
    yield from (f"| {name} | {amount:.2f} |" for name, amount in parts.items())
    yield f"| **idle, all in all** | **{sum(parts.values()):.2f}** |"
    yield f"| each job type: {ALARMS_PER_TYPE} alarms | {ALARMS_PER_TYPE * ALARM_MONTH:.2f} |"
    yield f"| each job type: {METRICS_PER_TYPE} metrics | {METRICS_PER_TYPE * METRIC_MONTH:.2f} |"
    amount = busy * (_invocation(SWEEP_MS) + looks + 2 * QUEUE_REQUEST)
    yield f"| instead: the sweep each 5 s, busy round the clock | {amount:.2f} |"
    yield f"| instead: an always-on task of 0.25 vCPU and 0.5 GB, with a look each 5 s | {task + busy * looks:.2f} |"


def tables() -> Mapping[str, str]:
    """Each table of the guide by its name."""
    made = {"lives": life_table(LIVES), "units": unit_table(LIVES), "idle": idle_table()}
    return {name: "\n".join(lines) + "\n" for name, lines in made.items()}


def written_into(text: str) -> str:
    """The text of the guide with the tables as they are now."""
    for name, table in tables().items():
        text = re.sub(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", rf"\g<1>{table}\g<2>", text, flags=re.DOTALL)
    return text


def main() -> None:
    if "--write" in sys.argv[1:]:
        GUIDE.write_text(written_into(GUIDE.read_text()))
        return
    sys.stdout.write("\n".join(tables().values()))


if __name__ == "__main__":
    main()
