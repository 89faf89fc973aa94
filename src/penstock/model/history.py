"""History: what happened in each step of a span of time, and how many jobs there were, computed from counted moves.

Nothing is sampled: the depth at the end of a step is the exact count now, less the moves since. Percentiles come from
buckets whose bounds are powers of two, interpolated.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from penstock.model.clock import EPOCH, LATEST
from penstock.model.declarations import plain_type
from penstock.model.errors import Invalid
from penstock.model.journal import FOLDS, NEWEST_SPAN, PRUNED, RETYPED, History, HistoryRow
from penstock.model.lifecycle import Move, State
from penstock.model.wire.history import HistoryStep, Percentiles

MOST_STEPS = 400
USUAL_STEPS = 120
NICE_STEPS = tuple(
    timedelta(seconds=number) for number in (10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800)
)

DEPTHS = (State.QUEUED, State.RUNNING, State.SCHEDULED)


class Steps(Struct, frozen=True):
    """Equal steps along time, aligned to whole multiples of their length since 1970."""

    since: datetime
    until: datetime
    step: timedelta

    @property
    def starts(self) -> Sequence[datetime]:
        return [self.since + self.step * number for number in range((self.until - self.since) // self.step)]


def plan_steps(since: datetime, until: datetime, step: timedelta | None, now: datetime) -> Steps:
    """The steps to answer with: as asked, or the shortest usual ones. Invalid says which are possible."""
    if since >= until:
        raise Invalid("from: must be before `to`")
    finest = next((fold.coarse for fold in reversed(FOLDS) if since < now - fold.age), NEWEST_SPAN)
    chosen = step or _usual_step(until - since, finest)
    if chosen < finest or chosen % finest:
        raise Invalid(f"step: for that time, a multiple of {_seconds(finest)} s: older spans are kept in longer ones")
    steps = Steps(_floor(since, chosen), min(_ceil(until, chosen), _floor(LATEST, chosen)), chosen)
    if (count := len(steps.starts)) > MOST_STEPS:
        raise Invalid(f"step: {count} steps are more than {MOST_STEPS}; choose a longer step, or a shorter span")
    return steps


def describe_steps(shards: Sequence[History], steps: Steps, type_name: str | None = None) -> list[HistoryStep]:
    """What happened in each step, over all shards; with a type, of its jobs alone."""
    rows = [row for one in shards for row in one.rows if type_name in (None, plain_type(row.type))]
    counts = [count for one in shards for count in one.counts if type_name in (None, plain_type(count.type))]
    now: Counter[State] = Counter()
    for count in counts:
        now[count.state] += count.jobs
    starts = steps.starts
    by_step = _by_step(rows, starts, steps.until)
    depths = _depths_back(now, rows, by_step, len(starts), steps.until)
    described = [
        _describe(at, by_step[number], depth) for number, (at, depth) in enumerate(zip(starts, depths, strict=True))
    ]
    return described


def _by_step(
    rows: Iterable[HistoryRow], starts: Sequence[datetime], until: datetime
) -> defaultdict[int, list[HistoryRow]]:
    found: defaultdict[int, list[HistoryRow]] = defaultdict(list)
    for row in rows:
        if starts and starts[0] <= row.at < until:
            found[bisect_right(starts, row.at) - 1].append(row)
    return found


def _depths_back(
    now: Counter[State],
    rows: Iterable[HistoryRow],
    by_step: Mapping[int, list[HistoryRow]],
    steps: int,
    until: datetime,
) -> list[dict[State, int]]:
    """The counts at the end of each step: from those of now back, a step at a time."""
    depth = Counter(now)
    _take_back(depth, (row for row in rows if row.at >= until))
    found: list[dict[State, int]] = []
    for number in reversed(range(steps)):
        found.append({state: depth[state] for state in DEPTHS})
        _take_back(depth, by_step.get(number, ()))
    return found[::-1]


def _take_back(depth: Counter[State], rows: Iterable[HistoryRow]) -> None:
    for row in rows:
        if row.after is not None:
            depth[row.after] -= row.jobs
        if row.before is not None:
            depth[row.before] += row.jobs


def _describe(at: datetime, rows: Sequence[HistoryRow], depth: Mapping[State, int]) -> HistoryStep:
    moves = [row for row in rows if row.move not in (PRUNED, RETYPED)]
    ended = Counter[State]()
    for row in moves:
        if row.after is not None and row.after is not row.before:
            ended[row.after] += row.jobs
    settled = [row for row in moves if row.move == Move.SETTLE]
    return HistoryStep(
        at=at,
        arrived=_jobs(row for row in moves if row.before is None),
        started=_jobs(row for row in moves if row.move == Move.CLAIM),
        succeeded=ended[State.SUCCEEDED],
        errored=_jobs(row for row in settled if row.after in (State.SCHEDULED, State.FAILED)),
        failed=ended[State.FAILED],
        cancelled=ended[State.CANCELLED],
        expired=ended[State.EXPIRED],
        lost=_jobs(row for row in moves if row.move == Move.RECLAIM),
        waiting=depth[State.QUEUED],
        running=depth[State.RUNNING],
        scheduled=depth[State.SCHEDULED],
        wait=percentiles(row for row in moves if row.move == Move.CLAIM),
        run=percentiles(settled),
    )


def _jobs(rows: Iterable[HistoryRow]) -> int:
    return sum(row.jobs for row in rows)


def percentiles(rows: Iterable[HistoryRow]) -> Percentiles | None:
    """Of the times of these rows, in seconds; None when there are none.

    Within a bucket, times are taken as evenly spread.
    """
    buckets: Counter[int] = Counter()
    for row in rows:
        if row.bucket is not None:
            buckets[row.bucket] += row.jobs
    total = buckets.total()
    if not total:
        return None
    return Percentiles(*(_quantile(buckets, total * part) / 1000 for part in (0.5, 0.95, 0.99)))


def _quantile(buckets: Mapping[int, int], rank: float) -> float:
    """The milliseconds below which `rank` of the jobs are."""
    passed, upper = 0.0, 0.0
    for bucket in sorted(buckets):
        jobs = buckets[bucket]
        lower, upper = _bounds(bucket)
        if passed + jobs >= rank:
            return lower + (upper - lower) * (rank - passed) / jobs
        passed += jobs
    return upper


def _bounds(bucket: int) -> tuple[float, float]:
    """The milliseconds that have so many binary digits: from, and up to."""
    return (0.0, 0.0) if bucket <= 0 else (float(2 ** (bucket - 1)), float(2**bucket))


def _usual_step(span: timedelta, finest: timedelta) -> timedelta:
    possible: Iterator[timedelta] = (step for step in NICE_STEPS if step >= finest and span / step <= USUAL_STEPS)
    return next(possible, NICE_STEPS[-1])


def _floor(at: datetime, step: timedelta) -> datetime:
    return EPOCH + (at.astimezone(UTC) - EPOCH) // step * step


def _ceil(at: datetime, step: timedelta) -> datetime:
    floor = _floor(at, step)
    return floor if floor == at else floor + step


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g}"
