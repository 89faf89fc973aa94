"""`penstock demo`: chapters that each do something to real jobs, check that it happened, and say so."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import click

from penstock.cli import style
from penstock.cli.commands import command
from penstock.cli.format import lasted, lines
from penstock.cli.job_format import took
from penstock.cli.style import bad, dim, good, state, warned
from penstock.lab.children import interruptible
from penstock.lab.demo.stage import DemoStage, expect, open_stage, until
from penstock.lab.demo.webhooks import DemoEndpoint, open_endpoint
from penstock.model.clock import SystemClock
from penstock.model.job import ErrorCode, JobError
from penstock.model.lifecycle import State
from penstock.model.wire.events import EventItem
from penstock.model.wire.jobs import JobItem

INDENT = "     "
CLEAR_LINE = "\r\033[K"
BAR_WIDTH = 30


@dataclass(frozen=True, slots=True)
class ChapterResult:
    """One line of the table at the end."""

    step: str
    state: State
    attempts: str
    took: str
    note: str = ""


@command("demo", "penstock demo", "penstock demo --jobs 20000")
@click.option("--jobs", type=click.IntRange(1), default=5_000, show_default=True, help="Jobs in the bulk chapter.")
def demo(*, jobs: int) -> None:
    """See it work: a real server on a free port and workers that come and go, in well under a minute.

    Submits, waits, retries, times out, cancels, kills a worker, downloads a file, follows a stream and verifies
    webhooks, and sends a burst that brings workers out and lets them go back to zero; leaves nothing behind.
    Exits 1 if anything does not happen as told.
    """
    clock = SystemClock()
    began = clock.monotonic()
    style.say()
    style.say(f"  {style.bold('Penstock')}: a server starts on this machine, on a free port …")
    with interruptible(), open_stage(clock) as stage:
        print_opening(stage)
        results: list[ChapterResult] = []
        for number, chapter in enumerate(CHAPTERS, 1):
            results.append(chapter(stage, number, jobs))
        print_summary(results, clock.monotonic() - began)


def print_opening(stage: DemoStage) -> None:
    style.say()
    style.say(f"{INDENT}{style.dim('server ')}  {stage.url}, data in {stage.folder} (removed afterwards)")
    style.say(f"{INDENT}{style.dim('page   ')}  {stage.url}/ui/ while it runs: waiting jobs, workers, every decision")
    style.say(f"{INDENT}{style.dim('workers')}  none: they come with the work, and go with it")


def print_chapter(number: int, title: str) -> None:
    style.say()
    style.say(f"  {style.bold(f'{number}  {title}')}")


def print_line(text: str) -> None:
    style.say(INDENT + text)


def print_live(done: int, of: int, unit: str) -> None:
    """A bar that is drawn over itself; nothing where there is no terminal."""
    if sys.stdout.isatty():
        filled = BAR_WIDTH * done // of
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        click.echo(f"{CLEAR_LINE}{INDENT}{bar} {done:,} of {of:,} {unit}", nl=False)


def print_level(waiting: int, most: int, workers: int) -> None:
    """What waits, as a bar, and a figure for each worker; drawn over itself, nothing where there is no terminal."""
    if sys.stdout.isatty():
        filled = BAR_WIDTH * waiting // max(1, most)
        bar = "█" * filled + "░" * (BAR_WIDTH - filled)
        click.echo(f"{CLEAR_LINE}{INDENT}{bar} {waiting:>4} waiting   {'●' * workers} {workers} workers", nl=False)


def end_live() -> None:
    if sys.stdout.isatty():
        click.echo(CLEAR_LINE, nl=False)


def print_summary(results: Sequence[ChapterResult], seconds: float) -> None:
    style.say()
    rows = [(each.step, style.state(each.state), each.attempts, each.took, each.note) for each in results]
    for line in lines(("WHAT HAPPENED", "STATE", "ATTEMPTS", "TOOK", ""), rows, right=("ATTEMPTS", "TOOK")):
        style.say(f"  {line}")
    style.say()
    style.say(f"  {style.good('All as told')}, in {seconds:.0f} seconds. Your turn:")
    style.say()
    style.say("    penstock up module:app        your own jobs")
    style.say("    penstock jobs --help          submit, list, watch, cancel, retry")
    style.say()


WAIT = timedelta(seconds=20)
CRUNCH_SECONDS = 1.5
BURST = 200


def submit_and_wait(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """One job, from submit to result, and from no worker to one."""
    print_chapter(number, "Submit a job and wait for its result")
    expect("there is no worker yet", not stage.client.workers())
    began = stage.clock.monotonic()
    job = stage.client.submit("greet", {"name": "World"})
    item = stage.client.wait(job.id, WAIT)
    span = timedelta(seconds=stage.clock.monotonic() - began)
    expect(f"greet succeeds, but it {item.state}", item.state is State.SUCCEEDED)
    print_line(f"greet(name='World')  →  {good(repr(item.result))}   {dim(f'there and back in {lasted(span)},')}")
    print_line(dim("with the start of the worker that ran it: there was none before"))
    return result_of("submit and wait", item)


def bulk(stage: DemoStage, number: int, jobs: int) -> ChapterResult:
    """Thousands of jobs in a few calls."""
    print_chapter(number, f"Submit {jobs:,} jobs at once")
    began = stage.clock.monotonic()
    answers = stage.client.submit_many({"type": "square", "params": {"number": index}} for index in range(jobs))
    submitted = stage.clock.monotonic() - began
    expect("every job is accepted", all(answer.id is not None for answer in answers))
    print_line(f"accepted, each one on disk, in {submitted:.2f} s {dim(f'({jobs / submitted:,.0f} per second)')}")

    def all_done() -> bool:
        done = _count_succeeded(stage, "square")
        print_live(done, jobs, "jobs done")
        return done >= jobs

    until(f"all {jobs:,} jobs have succeeded", all_done, stage.clock)
    end_live()
    span = stage.clock.monotonic() - began
    print_line(
        f"all {good('succeeded')} {span:.2f} s after the first was sent {dim(f'({jobs / span:,.0f} per second)')}"
    )
    return ChapterResult(
        "bulk", State.SUCCEEDED, f"{jobs:,} × 1", f"{span:.2f} s", f"{jobs / span:,.0f} jobs per second"
    )


def retry(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """An error that passes."""
    print_chapter(number, "A job that errors twice and is tried again")
    job = stage.client.submit("flaky", {"good_from": 3})
    for attempt in (1, 2):
        _tell_error(stage, job.id, attempt)
    item = stage.client.wait(job.id, WAIT)
    expect(f"it succeeds at attempt 3, but it {item.state} at {item.attempt}", _succeeded_at(item, 3))
    print_line(f"attempt {item.attempt}  {good('succeeded')}")
    return result_of("retry", item, "2 attempts errored")


def timeout(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """A job that never ends is ended."""
    print_chapter(number, "A job that hangs, with a timeout of 0.8 s")
    item = stage.client.wait(stage.client.submit("stuck").id, WAIT)
    code = item.error.code if item.error else None
    expect(f"it fails with a timeout, but it {item.state} ({code})", code is ErrorCode.TIMEOUT)
    print_line(f"{bad(item.state)}: {item.error.message if item.error else ''}")
    return result_of("timeout", item)


def cancel(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """A running job is asked to stop."""
    print_chapter(number, "Cancel a job while it runs")
    job = stage.client.submit("crunch", {"seconds": 600})
    item = _wait_until_running(stage, job.id)
    print_line(f"{state(item.state)}, with ten minutes to go: {item.progress.message if item.progress else ''}")
    stage.client.cancel(job.id)
    item = stage.client.wait(job.id, WAIT)
    expect(f"it is cancelled, but it {item.state}", item.state is State.CANCELLED)
    print_line(f"{state(item.state)} {lasted(took(item))} after it started")
    return result_of("cancel", item)


def killed_worker(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """A worker is killed; its job is run by another."""
    print_chapter(number, "Kill a worker (-9) in the middle of a job")
    job = stage.client.submit("crunch", {"seconds": CRUNCH_SECONDS})
    item = _wait_until_running(stage, job.id)
    victim = stage.kill(item.worker or "")
    print_line(f"process {victim} {bad('killed')} at {item.progress.fraction if item.progress else 0:.0%} of the job")
    killed_at = stage.clock.monotonic()
    until("the job runs elsewhere", lambda: stage.client.get(job.id).fence > item.fence + 1, stage.clock)
    away = stage.clock.monotonic() - killed_at
    print_line(f"its lease ran out; {away:.1f} s after the kill the job runs in a new worker, under a new fence")
    ended = stage.client.wait(job.id, WAIT)
    expect(f"it succeeds elsewhere, but it {ended.state}", ended.state is State.SUCCEEDED)
    expect("another worker finished it", ended.worker != item.worker)
    print_line(good(ended.state))
    return result_of("killed worker", ended, f"moved after {away:.1f} s, fence {item.fence} → {ended.fence}")


def output_file(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """A file that a job wrote."""
    print_chapter(number, "Download a file that a job wrote")
    item = stage.client.wait(stage.client.submit("poster", {"text": "Jobs flow. Penstock."}).id, WAIT)
    expect(f"it succeeds, but it {item.state}", item.state is State.SUCCEEDED)
    path = stage.client.download(item.id, "poster.txt", stage.folder)
    content = path.read_text()
    expect("the file is whole", len(content) == item.result)
    for line in content.splitlines():
        print_line(line)
    return result_of("output file", item, f"{path.name}, {item.outputs[0].size} bytes, digest compared")


def told(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """Every change of a job's state, as a stream and as signed webhooks."""
    print_chapter(number, "Be told of every change: by a stream, and by signed webhooks")
    with open_endpoint(stage.client, stage.clock, "flaky") as endpoint:
        job = stage.client.submit("flaky", {"good_from": 2})
        streamed = [(one, stage.clock.now()) for one in stage.client.stream(job.id) if isinstance(one, EventItem)]
        for event, at in streamed:
            _tell_event(event, at, endpoint)
    item, versions = stage.client.get(job.id), [event.version for event, _ in streamed]
    expect(f"no change is left out, but {versions} of {item.version} came", versions == [*range(1, item.version + 1)])
    return result_of("told", item, f"{item.version} events, each in the stream and in a webhook")


def burst(stage: DemoStage, number: int, _jobs: int) -> ChapterResult:
    """Workers come out for a burst, and go back to zero."""
    print_chapter(number, f"A burst of {BURST} jobs for a fleet that has no worker")
    expect("its fleet has no worker", stage.workers("nap") == 0)
    began = stage.clock.monotonic()
    stage.client.submit_many({"type": "nap", "params": {"seconds": 0.4}} for _ in range(BURST))
    seen = [0]

    def workers(waiting: int) -> int:
        seen.append(stage.workers("nap"))
        print_level(waiting, BURST, seen[-1])
        return seen[-1]

    def all_done() -> bool:
        done = _count_succeeded(stage, "nap")
        workers(BURST - done)
        return done == BURST

    until(f"all {BURST} jobs have succeeded", all_done, stage.clock)
    span = stage.clock.monotonic() - began
    end_live()
    print_line(f"0 → {good(str(max(seen)))} workers, all jobs {good('succeeded')} after {span:.1f} s")
    until("its workers have gone", lambda: workers(0) == 0, stage.clock)
    end_live()
    idle = stage.clock.monotonic() - began - span
    print_line(f"{max(seen)} → {good('0')} workers {idle:.1f} s later; no job was interrupted")
    attempts = {item.attempt for item in stage.client.list(type="nap", page_size=BURST)}
    expect(f"each job ran once, but attempts were {attempts}", attempts == {1})
    return ChapterResult("burst", State.SUCCEEDED, f"{BURST} × 1", f"{span:.1f} s", f"0 → {max(seen)} → 0 workers")


CHAPTERS: tuple[Callable[[DemoStage, int, int], ChapterResult], ...] = (
    submit_and_wait,
    bulk,
    retry,
    timeout,
    cancel,
    killed_worker,
    output_file,
    told,
    burst,
)


def result_of(step: str, item: JobItem, note: str = "") -> ChapterResult:
    """A chapter's line in the table at the end; it took from submit to end, with all attempts and waits between."""
    whole = item.completed_at - item.created_at if item.completed_at is not None else None
    return ChapterResult(step, item.state, str(item.attempt), lasted(whole), note)


def _count_succeeded(stage: DemoStage, queue: str) -> int:
    return sum(known.jobs.get(State.SUCCEEDED, 0) for known in stage.client.queues() if known.name == queue)


def _tell_error(stage: DemoStage, job: str, attempt: int) -> None:
    """Wait until this attempt has errored, and say with what."""

    def last_error() -> JobError | None:
        return stage.client.get(job).error

    until(
        f"attempt {attempt} errors",
        lambda: (found := last_error()) is not None and found.attempt >= attempt,
        stage.clock,
    )
    error = last_error()
    print_line(f"attempt {attempt}  {warned('errored')}    {error.message if error else ''}")


def _tell_event(event: EventItem, streamed_at: datetime, endpoint: DemoEndpoint) -> None:
    """Say when an event came in the stream, and when as a webhook, which it must have."""
    came_at = endpoint.wait_for(event.id, WAIT)
    expect(f"version {event.version} comes as a webhook that is signed", came_at is not None)
    moved = f"{event.before or 'new'} → {event.after}"
    webhook = f"webhook {good('verified')} {dim(_late(event, came_at or streamed_at))}"
    print_line(f"{event.version}  {moved:<22}  stream {dim(_late(event, streamed_at))}   {webhook}")


def _late(event: EventItem, at: datetime) -> str:
    """How long after its change an event came; the clocks are read in whole milliseconds."""
    return f"after {max((at - event.at) / timedelta(milliseconds=1), 0):>3.0f} ms"


def _succeeded_at(item: JobItem, attempt: int) -> bool:
    return item.state is State.SUCCEEDED and item.attempt == attempt


def _wait_until_running(stage: DemoStage, job: str) -> JobItem:
    """The job, once it runs and has told how far it is."""
    until("the job runs", lambda: stage.client.get(job).progress is not None, stage.clock)
    return stage.client.get(job)
