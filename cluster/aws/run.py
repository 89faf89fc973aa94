"""A run on the emulated cloud: load, faults, the end, the judgement."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from cluster.aws.cloud import FUNCTIONS, WORKER, Cloud
from cluster.aws.faults import BARS, MEANINGS, AwsFault, AwsFaults, AwsHarm, AwsRecovery, NotFelt, measure
from cluster.aws.load import GatewayCaller, GatewayClient, orders
from cluster.aws.topic import Subscriber, Told, judge_changes
from cluster.aws.trail import Trail
from cluster.board import Board
from cluster.checker import Found, Verdict, Wrong, judge
from cluster.clients import Supply
from cluster.records import Tail, events_of
from cluster.report import SHOWN
from cluster.results import collect_jobs, wait_until_ended
from cluster.run import Progress

SEED = 2026
SUBSCRIPTION = "topic"
Say = Callable[[str], None]


class AwsPlan(Struct, frozen=True, kw_only=True):
    """How much load, and which faults. With `to_zero` the run waits until no container is left."""

    jobs: int = 200
    clients: int = 2
    window: int = 40
    rate: float = 8.0
    faults: Sequence[AwsFault] = tuple(AwsFault)
    end_seconds: float = 120.0
    told_seconds: float = 120.0
    zero_seconds: float = 120.0
    to_zero: bool = True


class Outcome(Struct, frozen=True):
    """All that a run found."""

    verdict: Verdict
    told: Told
    recoveries: Sequence[AwsRecovery]
    refused: Sequence[str]
    faults_missing: int
    to_zero_seconds: float | None

    def good(self, plan: AwsPlan) -> bool:
        """Whether every promise was kept."""
        whole = self.verdict.acknowledged > 0 and self.verdict.finished_once == self.verdict.acknowledged
        quick = all(one.kept for one in self.recoveries) and not self.faults_missing
        zero = self.to_zero_seconds is not None or not plan.to_zero
        return whole and quick and zero and self.told.good and not (self.verdict.findings or self.refused)


def run(cloud: Cloud, plan: AwsPlan, say: Say) -> bool:
    """Whether every promise was kept; what was found goes to `say`."""
    board = Board(cloud.ledger, plan.window)
    supply = Supply(board, plan.jobs, plan.rate, orders(random.Random(SEED)))
    caller = cloud.caller()
    faults = AwsFaults(cloud, board, supply)
    say(f"containers before the first job: {len(faults.containers())}")
    subscriber = _subscribe(cloud, caller)
    try:
        harms = _run_load(cloud, plan, board, supply, faults, say)
        jobs = _await_end(caller, plan, subscriber, say)
        zero = _await_zero(faults, plan, say)
    finally:
        subscriber.stop()
        caller.close()
    events, ledger = events_of(cloud.histories.glob("client*.jsonl")), Tail(cloud.ledger).read()
    outcome = Outcome(
        judge(events, ledger, jobs),
        judge_changes(subscriber.versions(), jobs),
        measure(harms, events, ledger, subscriber),
        board.refused,
        len(plan.faults) - len(harms),
        zero,
    )
    for line in (*lines(outcome), "", *call_lines(Trail(cloud), outcome.verdict.acknowledged)):
        say(line)
    return outcome.good(plan)


def _subscribe(cloud: Cloud, caller: GatewayCaller) -> Subscriber:
    """Have every change published to the topic, and collect from there."""
    topic = cloud.outputs["ChangesTopic"]
    subscriber = Subscriber(cloud.client("sqs"), cloud.client("sns"), topic)
    subscriber.start()
    asked = {"name": SUBSCRIPTION, "sink": {"kind": "sns", "topic": topic}, "include": "facts"}
    answer = caller.call("POST", "/v1/subscriptions", asked)
    if not answer.ok:
        raise RuntimeError(f"no subscription was made: {answer.status} {answer.body}")
    return subscriber


def _run_load(cloud: Cloud, plan: AwsPlan, board: Board, supply: Supply, faults: AwsFaults, say: Say) -> list[AwsHarm]:
    clients = [GatewayClient(f"client{n}", cloud.caller(), supply, board, cloud.histories) for n in range(plan.clients)]
    began = time.monotonic()
    board.start()
    progress = Progress(board, plan.jobs)
    progress.start()
    for client in clients:
        client.start()
    try:
        board.wait_for(lambda: bool(board.started), plan.end_seconds)
        say(f"the first job was started {time.monotonic() - began:.1f} s after it was asked for, from no container")
        return _inflict_faults(faults, plan, board, progress, say)
    except BaseException:
        supply.stopped.set()
        raise
    finally:
        supply.enough.set()
        for client in clients:
            client.join()
        progress.stop()
        board.stop()
        say(f"load over after {time.monotonic() - began:.0f} s")


def _inflict_faults(faults: AwsFaults, plan: AwsPlan, board: Board, progress: Progress, say: Say) -> list[AwsHarm]:
    """Inflict each fault once, spread over the load."""
    harms: list[AwsHarm] = []
    for number, fault in enumerate(plan.faults, 1):
        wanted = plan.jobs * number // (len(plan.faults) + 1)
        progress.now = "no fault"
        board.wait_for(lambda wanted=wanted: len(board.acknowledged) >= wanted, plan.end_seconds)  # type: ignore[misc]
        progress.now = fault
        try:
            harms.append(faults.inflict(fault))
        except NotFelt as reason:
            say(f"WRONG  {reason}")
            return harms
        say(f"{fault}: all jobs that were open then have ended {time.monotonic() - harms[-1].at:.1f} s later")
    progress.now = "no fault"
    return harms


def _await_end(caller: GatewayCaller, plan: AwsPlan, subscriber: Subscriber, say: Say) -> list[Found]:
    if not wait_until_ended(caller, plan.end_seconds):
        say(f"not all jobs have ended within {plan.end_seconds:g} s")
    ended, pause = time.monotonic(), threading.Event()
    jobs = list(collect_jobs(caller))
    while judge_changes(subscriber.versions(), jobs).missed and time.monotonic() < ended + plan.told_seconds:
        pause.wait(0.2)
    say(f"the topic had told all it told {time.monotonic() - ended:.1f} s after the last job")
    return jobs


def _await_zero(faults: AwsFaults, plan: AwsPlan, say: Say) -> float | None:
    """How long it takes until the autoscaler has drained every worker; None if it did not."""
    began, pause = time.monotonic(), threading.Event()
    while plan.to_zero and time.monotonic() < began + plan.zero_seconds:
        if not faults.containers():
            say(f"no container is left {time.monotonic() - began:.1f} s later")
            return time.monotonic() - began
        pause.wait(0.5)
    return None


def call_lines(trail: Trail, jobs: int) -> Iterator[str]:
    """How often services were called for a job, by functions and workers, everything included."""
    for service in ("dynamodb", "sqs", "sns", "ecs", "s3"):
        requests = trail.requests(service)
        yield f"calls of {service:<12} {requests:>8,}  {requests / max(jobs, 1):.2f} a job"
    for role in (*FUNCTIONS, WORKER):
        if left := sorted({one.partition(" ")[0] for one in trail.unused(role)}):
            yield f"{role} may call, and did not: {', '.join(left)}"


def lines(outcome: Outcome) -> Iterator[str]:
    """The report."""
    verdict, told = outcome.verdict, outcome.told
    yield f"jobs acknowledged     {verdict.acknowledged:>8,}"
    yield f"finished once         {verdict.finished_once:>8,}"
    for wrong in Wrong:
        yield f"{wrong:<20}  {verdict.count(wrong):>8,}"
    yield f"requests refused      {len(outcome.refused):>8,}"
    yield f"attempts interrupted  {verdict.interrupted:>8,}"
    yield f"changes on the topic  {told.changes:>8,}  and {told.repeated:,} repeated"
    yield f"missed on the topic   {len(told.missed):>8,}"
    yield f"unknown on the topic  {len(told.unknown):>8,}"
    yield ""
    for one in outcome.recoveries:
        longest = "–" if one.seconds is None else f"{one.seconds:.1f} s"
        mark = "ok" if one.kept else "TOO LONG"
        yield f"{one.fault:<18} {longest:>8}  ≤ {BARS[one.fault]:g} s  {mark:<8}  {MEANINGS[one.fault]}"
    for finding in verdict.findings[:SHOWN]:
        yield f"WRONG  order {finding.n}: {finding.wrong}: {finding.what}"
    for what in (*outcome.refused[:SHOWN], *told.missed[:SHOWN], *told.unknown[:SHOWN]):
        yield f"WRONG  {what}"
