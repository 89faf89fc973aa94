"""When a schedule ticks."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.clock import EPOCH, LATEST
from penstock.model.errors import Invalid
from penstock.model.ids import ShardId, created_at, parse_job_id, shard_of
from penstock.model.schedule import Cron, Every
from penstock.model.ticks import check, first_tick, jittered, next_tick, preview, tick_job_id, ticks_between

INSTANTS = st.timedeltas(timedelta(days=7000), timedelta(days=44_000)).map(lambda since: EPOCH + since)
SPANS = st.integers(1000, 10**10).map(lambda value: timedelta(milliseconds=value))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def every(**span: float) -> Every:
    return Every(timedelta(**span))


@given(span=SPANS, after=INSTANTS)
def test_an_interval_is_anchored_at_the_epoch_whoever_asks_and_when(span: timedelta, after: datetime) -> None:
    tick = next_tick(Every(span), after)
    assert tick is not None
    assert after < tick <= after + span
    assert (tick - EPOCH) % span == timedelta(0)


@given(span=SPANS, after=INSTANTS, start=INSTANTS)
def test_no_tick_is_earlier_than_the_start(span: timedelta, after: datetime, start: datetime) -> None:
    for when in (Every(span), Every(span, after_completion=True), Cron("*/7 * * * *")):
        tick = next_tick(when, after, start_at=start)
        assert tick is not None
        assert tick >= start
        assert tick > after


def test_start_and_end_may_be_ticks_themselves() -> None:
    ticks = preview(every(hours=1), at("2026-01-01"), 9, start_at=at("2026-01-01 05:00"), end_at=at("2026-01-01 07:00"))
    assert ticks == [at("2026-01-01 05:00"), at("2026-01-01 06:00"), at("2026-01-01 07:00")]
    assert preview(Cron("@hourly"), at("2026-01-01"), 1, start_at=at("2026-01-01 05:00")) == [at("2026-01-01 05:00")]
    assert next_tick(every(hours=1), at("2026-01-01 07:00"), end_at=at("2026-01-01 07:59:59")) is None


@pytest.mark.parametrize("when", [every(hours=1), Cron("@hourly"), Every(timedelta(hours=1), after_completion=True)])
def test_no_tick_comes_after_the_last_instant_that_can_be_kept(when: Every | Cron) -> None:
    last = preview(when, LATEST - timedelta(minutes=90), 9)
    assert 1 <= len(last) <= 2
    assert last[-1] <= LATEST
    assert next_tick(when, LATEST) is None


def test_after_a_completion_the_whole_span_passes() -> None:
    when = Every(timedelta(minutes=5), after_completion=True)
    assert next_tick(when, at("2026-01-01 00:03:07")) == at("2026-01-01 00:08:07")
    assert next_tick(when, at("2026-01-01"), end_at=at("2026-01-01 00:04")) is None


def test_what_counts_from_completions_begins_at_its_start_or_at_once() -> None:
    when, now = Every(timedelta(minutes=5), after_completion=True), at("2026-01-01 00:00:00.000500")
    assert first_tick(when, now) == at("2026-01-01 00:00:00.001")
    assert first_tick(when, now, start_at=at("2026-01-02")) == at("2026-01-02")
    assert first_tick(when, now, end_at=at("2025-01-01")) is None
    assert first_tick(every(minutes=5), now) == at("2026-01-01 00:05")


def test_ticks_between_leaves_out_the_first_instant_and_keeps_the_last_up_to_the_limit() -> None:
    ticks = ticks_between(Cron("*/10 * * * *"), at("2026-01-01 00:10"), at("2026-01-01 00:40"), 10)
    assert ticks == [at("2026-01-01 00:20"), at("2026-01-01 00:30"), at("2026-01-01 00:40")]
    assert ticks_between(Cron("*/10 * * * *"), at("2026-01-01 00:10"), at("2026-01-01 00:40"), 2) == ticks[:2]


def test_time_ends_without_an_error() -> None:
    late = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    for when in (Every(timedelta.max), Cron("@yearly"), Cron("@daily", "Asia/Tokyo"), Every(timedelta.max, True)):
        assert next_tick(when, late) is None


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (Cron("0 0 31 2 *"), "cron: .*never happens"),
        (Cron("daily"), "cron: .*not 5 fields"),
        (Cron("@daily", "Mars/Olympus"), "timezone: 'Mars/Olympus' is not an IANA time zone such as Europe/Berlin"),
        (Cron("@daily", "Europe"), "timezone: "),
        (Cron("@daily", ""), "timezone: "),
        (Cron("@daily", "../../etc/passwd"), "timezone: "),
        (Cron("@daily", "a\0b"), "timezone: "),
        (every(seconds=0), "interval: 0 s is too short; use 1 s or more"),
        (every(seconds=-5), "interval: -5 s"),
        (every(milliseconds=999), "interval: 0.999 s"),
        (every(seconds=1, microseconds=1), "interval: .* finer than a millisecond"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_with_the_field(when: Every | Cron, words: str) -> None:
    with pytest.raises(Invalid, match=f"^{words}"):
        check(when)


def test_an_end_that_is_not_after_the_start_is_refused() -> None:
    check(every(seconds=1), at("2026-01-01"), at("2026-01-02"))
    check(Cron("@daily", "Europe/Berlin"), None, at("2026-01-02"))
    for end in ("2026-01-01", "2025-01-01"):
        with pytest.raises(Invalid, match=r"^end_at: .* is not after start_at"):
            check(every(seconds=1), at("2026-01-01"), at(end))


@given(tick=INSTANTS, name=st.text(), jitter=st.timedeltas(timedelta(0), timedelta(days=2)))
def test_jitter_is_never_early_never_beyond_and_always_the_same(tick: datetime, name: str, jitter: timedelta) -> None:
    assert tick <= jittered(tick, name, jitter) <= tick + jitter
    assert jittered(tick, name, jitter) == jittered(tick, name, jitter)


def test_jitter_spreads_schedules_and_ticks() -> None:
    tick, jitter = at("2026-01-01"), timedelta(seconds=100)
    spread = [jittered(tick, f"nightly-{number}", jitter) - tick for number in range(1000)]
    assert min(spread) < timedelta(seconds=2)
    assert max(spread) > timedelta(seconds=98)
    assert timedelta(seconds=45) < sum(spread, timedelta(0)) / 1000 < timedelta(seconds=55)


def test_the_job_of_a_tick_has_one_id_that_is_an_ordinary_job_id() -> None:
    made, tick = at("2026-01-01"), at("2026-02-01 02:00:00.123")
    job = tick_job_id("nightly", made, tick, ShardId(4095))
    assert job == tick_job_id("nightly", made, tick, ShardId(4095)) == parse_job_id(job)
    assert (created_at(job), shard_of(job)) == (tick, 4095)


def test_other_ticks_other_schedules_and_later_ones_of_the_same_name_have_other_ids() -> None:
    made, tick, second = at("2026-01-01"), at("2026-02-01"), timedelta(seconds=1)
    others = [("a", made, tick), ("b", made, tick), ("a", made + second, tick), ("a", made, tick + second)]
    assert len({tick_job_id(name, made_at, tick_at, ShardId(0)) for name, made_at, tick_at in others}) == 4
