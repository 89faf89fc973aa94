"""How fast single jobs are accepted over HTTP, each durable before its answer."""

from collections.abc import Sequence

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.load import noops, posts_per_second, submits
from penstock.cli.bench.rig import TYPE, Workshop
from penstock.cli.loop import run
from penstock.model.timing import SystemClock

CALLERS = 64


def submit(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """One caller, then 64; beside them the same server's rate for a POST that it only reads and answers.

    The queue is paused meanwhile, so that the rate is that of submits alone.
    """
    with workshop.rig() as rig:
        rig.client.pause(TYPE)

        def measured(requests: Sequence[bytes], callers: int) -> float:
            return run(posts_per_second(rig.url, requests, callers, amounts.submit_seconds, SystemClock()))

        one = measured(submits(rig.url), 1)
        many = measured(submits(rig.url), CALLERS)
        bare = measured(noops(rig.url), CALLERS)
    return [
        Figure("submit", "1 caller", one, "/s", "durable on return"),
        Figure("submit", f"{CALLERS} callers", many, "/s", "durable on return"),
        Figure("submit", f"{CALLERS} callers, no-op POST", bare, "/s", "the same server, nothing stored"),
        Figure("submit", "submit / no-op POST", many / bare, "×"),
    ]
