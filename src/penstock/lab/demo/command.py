"""`penstock demo`"""

import click

from penstock.cli import style
from penstock.cli.commands import command
from penstock.lab.children import interruptible
from penstock.lab.demo.stage import staged
from penstock.lab.demo.story import CHAPTERS, ChapterResult, print_opening, print_summary
from penstock.model.clock import SystemClock


@command("demo", "penstock demo", "penstock demo --jobs 20000")
@click.option("--jobs", type=click.IntRange(1), default=5_000, show_default=True, help="Jobs in the bulk chapter.")
def demo(*, jobs: int) -> None:
    """See it work: a real server on a free port and workers that come and go, in well under a minute.

    Submits, waits, retries, times out, cancels, kills a worker, downloads a file, and sends a burst that brings
    workers out and lets them go back to zero; leaves nothing behind.
    Exits 1 if anything does not happen as told.
    """
    clock = SystemClock()
    began = clock.monotonic()
    style.say()
    style.say(f"  {style.bold('Penstock')}: a server starts on this machine, on a free port …")
    with interruptible(), staged(clock) as stage:
        print_opening(stage)
        told: list[ChapterResult] = []
        for number, chapter in enumerate(CHAPTERS, 1):
            told.append(chapter(stage, number, jobs))
        print_summary(told, clock.monotonic() - began)
