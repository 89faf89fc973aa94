"""What is true of every decision, whatever the fleet, the reading and the past."""

from datetime import UTC, datetime, timedelta

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.autoscaler import Memory, decide
from penstock.lab.simulation.scalers import Ours
from penstock.lab.simulation.world import Machines, ScalerOrder, SimulatedSnapshot, TracedJob, World, trace_of
from penstock.model.fleet_readings import (
    ASSUMED_STARTUP_SECONDS,
    LEAST_START_COST_SECONDS,
    DueCount,
    FleetReading,
    Unknown,
    known,
)
from penstock.model.fleets import Depth, Fleet, KeepWarm, Step, Wait
from penstock.model.wire.fleets import FleetDecision

NOON = datetime(2030, 1, 7, 12, tzinfo=UTC)
MOST_FLAPS = 4
BLIND = ("backlog", "starting", "idle", "busy")

counts = st.integers(0, 60)
spans = st.floats(0, 120, allow_nan=False)
policies = st.one_of(
    st.builds(Wait, target=st.floats(0.1, 120)),
    st.builds(
        Depth,
        steps=st.sampled_from([(Step(),), (Step(5, 2),), (Step(0, 1), Step(20, 4))]),
        empty_for=spans,
        cooldown=spans,
    ),
)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    most = draw(st.integers(1, 30))
    up_to = st.integers(0, most)
    warm = st.builds(
        KeepWarm, workers=st.integers(1, most), start=st.just("11:59"), end=st.sampled_from(["12:01", "15:00"])
    )
    return Fleet(
        min=draw(up_to),
        max=most,
        policy=draw(policies),
        capacity=draw(st.none() | st.integers(1, 16)),
        keep_warm=tuple(draw(st.lists(warm, max_size=1))),
        out_after=draw(st.sampled_from([0.0, 5.0])),
        in_after=draw(st.none() | spans),
        blind_for=draw(spans),
        fallback=draw(up_to),
    )


@st.composite
def readings(draw: st.DrawFn, *, blind: bool = True) -> FleetReading:
    """A reading in which anything may be Unknown; what no decision can do without only if `blind`."""
    unknown = st.just(Unknown())
    must = counts | unknown if blind else counts
    amount = st.floats(0, 600, allow_nan=False) | unknown
    dues = st.lists(st.builds(DueCount, st.floats(0, 120), st.integers(1, 40)), max_size=3).map(tuple)
    return FleetReading(
        at=NOON,
        backlog=draw(must),
        running=draw(counts | unknown),
        due_soon=draw(dues | unknown),
        oldest_wait_seconds=draw(amount),
        arrival_rate=draw(amount),
        service_seconds=draw(amount),
        startup_seconds=draw(amount),
        capacity=draw(st.integers(1, 16) | unknown),
        starting=draw(must),
        idle=draw(must),
        busy=draw(must),
        draining=draw(counts | unknown),
    )


@st.composite
def pasts(draw: st.DrawFn) -> tuple[Fleet, Memory]:
    """A fleet, and the memory of a few looks at it."""
    fleet, memory = draw(fleets()), Memory()
    gone = draw(st.lists(st.floats(0.1, 60), max_size=4))
    for number, look in enumerate(draw(readings()) for _ in gone):
        at = NOON - timedelta(seconds=sum(gone[number:]))
        _, memory = decide(fleet, replace(look, at=at), memory)
    return fleet, memory


def due_in_time(look: FleetReading) -> int:
    """Jobs that are due now, or will be before a worker that is started now is up."""
    startup = look.startup_seconds if known(look.startup_seconds) else ASSUMED_STARTUP_SECONDS
    soon = look.due_soon if known(look.due_soon) else ()
    return (look.backlog if known(look.backlog) else 0) + sum(due.jobs for due in soon if due.in_seconds <= startup)


@given(past=pasts(), look=readings())
def test_never_below_min_and_never_above_max(past: tuple[Fleet, Memory], look: FleetReading) -> None:
    fleet, memory = past
    decision, _ = decide(fleet, look, memory)
    assert fleet.min <= decision.desired <= fleet.max


@given(past=pasts(), look=readings(blind=False))
def test_never_starts_beyond_max(past: tuple[Fleet, Memory], look: FleetReading) -> None:
    fleet, memory = past
    decision, _ = decide(fleet, look, memory)
    assert decision.start == 0 or _present(look) + decision.start <= fleet.max


@given(past=pasts(), look=readings(blind=False))
def test_never_to_zero_with_work_that_is_due_or_will_be_before_a_worker_is_up(
    past: tuple[Fleet, Memory], look: FleetReading
) -> None:
    fleet, memory = past
    assume(due_in_time(look) > 0)
    decision, _ = decide(fleet, look, memory)
    assert decision.desired >= 1
    assert _present(look) == 0 or _present(look) - decision.stop >= 1


@given(past=pasts(), look=readings())
def test_never_stops_more_than_are_idle(past: tuple[Fleet, Memory], look: FleetReading) -> None:
    fleet, memory = past
    decision, _ = decide(fleet, look, memory)
    assert 0 <= decision.stop <= (look.idle if known(look.idle) else 0)
    assert not (decision.start and decision.stop)


@given(past=pasts(), look=readings(blind=False), missing=st.sets(st.sampled_from(BLIND), min_size=1))
def test_unknown_holds(past: tuple[Fleet, Memory], look: FleetReading, missing: set[str]) -> None:
    fleet, memory = past
    fleet = replace(fleet, min=0, blind_for=600.0, keep_warm=())
    decision, _ = decide(fleet, replace(look, **dict.fromkeys(missing, Unknown())), memory)
    assert (decision.start, decision.stop) == (0, 0)


@given(past=pasts(), look=readings(blind=False))
def test_unknown_falls_back_after_a_while(past: tuple[Fleet, Memory], look: FleetReading) -> None:
    fleet, memory = past
    decision = _blind_for(fleet, replace(look, backlog=Unknown()), memory, fleet.blind_for)
    assert decision.desired >= fleet.fallback
    assert _present(look) + decision.start >= min(fleet.max, max(fleet.fallback, fleet.min))
    assert decision.stop == 0


@given(past=pasts(), look=readings(blind=False), more=st.integers(1, 200))
def test_more_backlog_never_means_fewer_workers(past: tuple[Fleet, Memory], look: FleetReading, more: int) -> None:
    fleet, memory = past
    assert known(look.backlog)
    less, _ = decide(fleet, look, memory)
    greater, _ = decide(fleet, replace(look, backlog=look.backlog + more), memory)
    assert greater.desired >= less.desired
    assert greater.stop <= less.stop


@given(
    past=pasts(),
    look=readings(blind=False),
    startup=st.floats(0, 60),
    part=st.floats(0, 1),
    jobs=st.integers(1, 100),
)
def test_jobs_due_soon_start_a_worker_before_they_are_due(
    past: tuple[Fleet, Memory], look: FleetReading, startup: float, part: float, jobs: int
) -> None:
    fleet, memory = past
    nobody = {"backlog": 0, "running": 0, "starting": 0, "idle": 0, "busy": 0, "startup_seconds": startup}
    look = replace(look, **nobody, due_soon=(DueCount(startup * part, jobs),))
    decision, _ = decide(replace(fleet, out_after=0.0), look, memory)
    assert decision.start >= 1


# Always the same examples: a few random ones have more flaps, which docs/design/scaling.md names.
@settings(max_examples=40, derandomize=True)
@given(
    part=st.floats(0.05, 1),
    service=st.floats(0.05, 60),
    startup=st.floats(0.1, 30),
    target=st.floats(1, 60),
    jobs=st.integers(50, 100),
)
def test_a_constant_load_does_not_make_the_fleet_flap(
    part: float, service: float, startup: float, target: float, jobs: int
) -> None:
    """Jobs come again before a start would have paid: once that is known, none follows soon after a stop."""
    every = part * max(startup, LEAST_START_COST_SECONDS)
    machines = Machines(startup, 1, 2000)
    trace = trace_of("constant", [TracedJob(number * every, service) for number in range(jobs)])
    watched = _Watched(Fleet(max=2000, target_wait=target), machines)
    World(trace, machines, watched).play()
    assert len([at for at in watched.flaps if at > trace.ends / 2]) <= MOST_FLAPS


def _blind_for(fleet: Fleet, look: FleetReading, memory: Memory, span: object) -> FleetDecision:
    assert isinstance(span, float)
    _, memory = decide(fleet, look, memory)
    decision, _ = decide(fleet, replace(look, at=look.at + timedelta(seconds=span)), memory)
    return decision


def _present(look: FleetReading) -> int:
    return sum(count for count in (look.starting, look.idle, look.busy) if known(count))


class _Watched(Ours):
    """The policy, with the times at which it started workers soon after it had stopped some."""

    def __init__(self, fleet: Fleet, machines: Machines) -> None:
        super().__init__(fleet, machines)
        self.start_cost = max(machines.startup, LEAST_START_COST_SECONDS)
        self.stopped_at = float("-inf")
        self.flaps: list[float] = []

    def observe(self, snapshot: SimulatedSnapshot) -> ScalerOrder:
        order = super().observe(snapshot)
        if order.start and snapshot.at - self.stopped_at <= self.start_cost:
            self.flaps.append(snapshot.at)
        self.stopped_at = snapshot.at if order.stop else self.stopped_at
        return order
