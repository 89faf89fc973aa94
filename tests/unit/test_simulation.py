"""The simulator: a fleet on a virtual clock, the rivals' rules, the clairvoyant, and the command."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import ROOT
from penstock.lab.simulation.contest import CONTENDERS, PATTERNS, contest, make_trace, percentile, smallest_fixed
from penstock.lab.simulation.plot import svg
from penstock.lab.simulation.scalers import FixedSize, Keda, Ours, StepAlarms, clairvoyant
from penstock.lab.simulation.world import (
    Machines,
    Scaler,
    ScalerOrder,
    SimulatedRun,
    SimulatedSnapshot,
    Trace,
    TracedJob,
    World,
    read_trace,
    trace_of,
)
from penstock.model.errors import Invalid
from penstock.model.fleets import Fleet

MACHINES = Machines(startup=5.0, capacity=1, max=50)


class Told:
    """A scaler that does as it is told, a look a second."""

    name = "told"
    lets_go = True

    def __init__(self, orders: dict[float, ScalerOrder]) -> None:
        self.orders = orders
        self.snapshots: list[SimulatedSnapshot] = []

    def observe(self, snapshot: SimulatedSnapshot) -> ScalerOrder:
        self.snapshots.append(snapshot)
        return self.orders.get(snapshot.at, ScalerOrder())


def trace(*jobs: tuple[float, float]) -> Trace:
    return trace_of("given", [TracedJob(at, seconds) for at, seconds in jobs])


def played(scaler: Scaler, work: Trace, machines: Machines = MACHINES) -> SimulatedRun:
    return World(work, machines, scaler).play()


def snapshot(at: float = 0.0, **seen: int) -> SimulatedSnapshot:
    quiet = {"backlog": 0, "running": 0, "starting": 0, "idle": 0, "busy": 0}
    return SimulatedSnapshot(at=at, **{**quiet, **seen}, oldest_wait=0.0, arrived=0, due_soon=[], service=None)


# The world


def test_a_worker_is_paid_from_the_asking_to_the_letting_go() -> None:
    run = played(Told({0.0: ScalerOrder(start=1), 9.0: ScalerOrder(stop=1)}), trace((0.0, 2.0)))
    assert run.waits == [5.0]
    assert run.worker_seconds == 9.0


def test_a_job_begins_at_once_where_a_slot_is_free() -> None:
    scaler = Told({0.0: ScalerOrder(start=1), 30.0: ScalerOrder(stop=1)})
    assert played(scaler, trace((10.0, 2.0), (11.0, 2.0), (20.0, 1.0))).waits == [0.0, 1.0, 0.0]


def test_capacity_lets_a_worker_run_several_at_once() -> None:
    scaler = Told({0.0: ScalerOrder(start=1), 30.0: ScalerOrder(stop=1)})
    run = played(scaler, trace((6.0, 4.0), (6.0, 4.0), (6.0, 4.0)), Machines(5.0, 2, 50))
    assert run.waits == [0.0, 0.0, 4.0]


def test_a_busy_worker_that_is_let_go_finishes_its_job_and_takes_no_other() -> None:
    scaler = Told(
        {
            0.0: ScalerOrder(start=1),
            7.0: ScalerOrder(stop=1, start=0),
            8.0: ScalerOrder(start=1),
            30.0: ScalerOrder(stop=1),
        }
    )
    run = played(scaler, trace((6.0, 6.0), (6.5, 1.0)))
    assert run.waits == [0.0, 6.5]
    assert run.worker_seconds == 12.0 + 22.0


def test_idle_workers_go_first() -> None:
    scaler = Told({0.0: ScalerOrder(start=2), 7.0: ScalerOrder(stop=1), 20.0: ScalerOrder(stop=1)})
    run = played(scaler, trace((6.0, 6.0), (6.5, 1.0), (8.0, 1.0)))
    assert run.waits == [0.0, 0.0, 4.0]


def test_no_more_workers_than_there_may_be() -> None:
    run = played(Told({0.0: ScalerOrder(start=99), 20.0: ScalerOrder(stop=99)}), trace((0.0, 1.0)))
    assert run.peak == MACHINES.max


def test_the_same_trace_gives_the_same_run() -> None:
    work = make_trace("burst", 7, 0.05)
    fleet = Fleet(max=50, target_wait="15s")
    assert played(Ours(fleet, MACHINES), work) == played(Ours(fleet, MACHINES), work)


def test_jobs_known_before_they_are_due_do_not_wait_for_a_worker() -> None:
    jobs = [TracedJob(100.0, 1.0), TracedJob(300.0, 1.0)]
    fleet = Fleet(max=50, target_wait="15s")
    surprised = played(Ours(fleet, MACHINES), trace_of("surprise", jobs))
    told = trace_of("told", [TracedJob(job.at, job.seconds, known=60.0) for job in jobs])
    assert min(surprised.waits) >= 5.0
    assert played(Ours(fleet, MACHINES), told).waits == [0.0, 0.0]


# Rivals


def test_step_alarms_step_out_each_minute_and_go_to_zero_after_three_empty_ones() -> None:
    alarms = StepAlarms(MACHINES)
    assert alarms.observe(snapshot(backlog=11)).start == 2
    assert alarms.observe(snapshot(backlog=101, busy=2)).start == 10
    assert [alarms.observe(snapshot(idle=12)).stop for _ in range(3)] == [0, 0, 12]
    assert alarms.observe(snapshot()).look_again == 60.0


def test_keda_wakes_with_one_and_then_at_most_doubles_or_adds_four() -> None:
    keda = Keda(MACHINES)
    assert keda.observe(snapshot(0.0)).look_again == 30.0
    assert keda.observe(snapshot(30.0, backlog=500)).start == 1
    assert keda.observe(snapshot(45.0, backlog=500, busy=1)).start == 4
    assert keda.observe(snapshot(60.0, backlog=500, busy=8)).start == 8


def test_keda_divides_what_is_queued_and_in_flight_by_five() -> None:
    assert Keda(MACHINES).observe(snapshot(15.0, backlog=28, running=2, busy=4)).start == 2
    assert Keda(MACHINES).observe(snapshot(15.0, backlog=17, running=4, busy=4)).start == 0


def test_keda_goes_in_to_the_most_of_five_minutes_and_to_zero_after_as_long() -> None:
    keda = Keda(MACHINES)
    keda.observe(snapshot(0.0, backlog=100, busy=20))
    assert keda.observe(snapshot(295.0, backlog=10, busy=20)).stop == 0
    assert keda.observe(snapshot(315.0, backlog=10, busy=20)).stop == 18
    assert keda.observe(snapshot(600.0, idle=2)).stop == 0
    assert keda.observe(snapshot(616.0, idle=2)).stop == 2


def test_the_fixed_size_is_the_smallest_that_waits_no_longer() -> None:
    work = trace(*((10.0 + number / 2, 1.0) for number in range(200)))
    run = smallest_fixed(work, MACHINES, 0.0)
    assert run.peak == 2
    assert played(FixedSize(1), work).waits[-1] > 0


# The clairvoyant


def test_the_clairvoyant_is_up_just_in_time_and_gone_at_once() -> None:
    run = clairvoyant(trace((100.0, 3.0)), MACHINES, SimulatedRun(hindsight_seconds=99.0), 0.0, 0.0)
    assert (run.waits, run.worker_seconds, run.starts) == ([0.0], 8.0, 1)


def test_the_clairvoyant_waits_out_a_gap_only_when_a_start_costs_more() -> None:
    near = clairvoyant(trace((0.0, 1.0), (4.0, 1.0)), MACHINES, SimulatedRun(hindsight_seconds=99.0), 0.0, 0.0)
    far = clairvoyant(trace((0.0, 1.0), (40.0, 1.0)), MACHINES, SimulatedRun(hindsight_seconds=99.0), 0.0, 0.0)
    assert (near.worker_seconds, near.starts) == (5.0 + 2.0 + 3.0, 1)
    assert (far.worker_seconds, far.starts) == (10.0 + 2.0, 2)


def test_the_clairvoyant_lets_jobs_wait_as_long_as_it_may() -> None:
    work = trace((0.0, 2.0), (0.0, 2.0), (0.0, 2.0))
    assert clairvoyant(work, MACHINES, SimulatedRun(hindsight_seconds=99.0), 4.0, 4.0).starts == 1
    assert clairvoyant(work, MACHINES, SimulatedRun(hindsight_seconds=99.0), 1.0, 1.0).starts == 3


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_job_runs_once_and_the_clairvoyant_pays_no_more_than_we_do(pattern: str) -> None:
    work = make_trace(pattern, 3, 0.02)
    ours = played(Ours(Fleet(max=50, target_wait="15s"), MACHINES), work)
    assert len(ours.waits) == len(work.jobs)
    assert min(ours.waits) >= 0
    wait = percentile(ours.waits, 0.95)
    best = clairvoyant(work, MACHINES, ours, wait, percentile(ours.waits, 0.99))
    assert work.work_seconds < best.worker_seconds <= ours.worker_seconds
    assert percentile(best.waits, 0.95) <= wait


# The contest


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_we_wait_no_longer_and_pay_less_than_step_alarms_and_keda(pattern: str) -> None:
    scores = contest(make_trace(pattern, 1, 0.25), Machines(5.0, 1, 100), Fleet(max=100, target_wait="15s")).scores
    ours, alarms, keda, _, _ = scores.results
    for rival in (alarms, keda):
        assert ours.wait_p95_seconds <= rival.wait_p95_seconds
        assert ours.worker_seconds < rival.worker_seconds
    assert ours.to_clairvoyant <= 1.25


def test_a_plot_has_a_panel_for_every_contender() -> None:
    drawn = svg(contest(make_trace("burst", 1, 0.02), MACHINES, Fleet(max=50, target_wait="15s")))
    panels = re.findall(r"<tspan[^>]*>([^<]+)</tspan>", drawn)
    assert panels == list(CONTENDERS)


# Traces


def test_a_trace_is_read_in_order_and_from_its_first_job(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"at": 1700000005.5, "seconds": 2}\n\n{"at": 1700000000, "seconds": 1}\n')
    assert read_trace(file) == trace_of("history", [TracedJob(0.0, 1.0), TracedJob(5.5, 2.0)])


@pytest.mark.parametrize(
    ("text", "told"), [("", "no jobs"), ('{"at": 1}', "line 1"), ('{"at":1,"seconds":-1}', "line 1")]
)
def test_a_trace_that_is_none_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(text)
    with pytest.raises(Invalid, match=told):
        read_trace(file)


# The command


def test_the_command_prints_a_line_for_every_contender(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text("".join(f'{{"at": {number}, "seconds": 1}}\n' for number in range(40)))
    plot = tmp_path / "history.svg"
    shown = CliRunner().invoke(ROOT, ["autoscale", "simulate", "--trace", str(file), "--plot", str(plot)])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()[2:7]
    assert [line.partition("  ")[0] for line in lines] == list(CONTENDERS)
    assert plot.read_text().startswith("<svg")


def test_the_command_takes_a_fleet_and_answers_in_json(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.json"
    fleet.write_text('{"max": 3, "policy": {"type": "depth"}}')
    words = ["autoscale", "simulate", "--pattern", "burst", "--scale", "0.01", "--fleet", str(fleet), "--json"]
    answer = json.loads(CliRunner().invoke(ROOT, words).output)
    assert [result["contender"] for result in answer["results"]] == list(CONTENDERS)
    assert answer["results"][0]["peak"] <= 3


def test_the_command_draws_nothing_but_svg() -> None:
    words = ["autoscale", "simulate", "--pattern", "burst", "--plot", "burst.png"]
    assert "SVG only" in CliRunner().invoke(ROOT, words).output
