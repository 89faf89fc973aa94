"""What a system costs that has nothing to do."""

import time

from penstock.cli.bench import process_table
from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import Workshop

SETTLE_SECONDS = 1.0


def idle(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Processor time of the server, and of its worker, in percent of a core. Nothing where there is no /proc."""
    if not process_table.AVAILABLE:
        return []
    with workshop.rig() as rig:
        time.sleep(SETTLE_SECONDS)
        worker = process_table.family_of(rig.pid)[1:]
        before = _cpu([rig.pid]), _cpu(worker)
        time.sleep(amounts.idle_seconds)
        after = _cpu([rig.pid]), _cpu(worker)
    spent = [(end - begin) / amounts.idle_seconds * 100 for begin, end in zip(before, after, strict=True)]
    return [
        Figure("idle", "server", spent[0], "% of a core", f"over {amounts.idle_seconds:g} s"),
        Figure("idle", "worker", spent[1], "% of a core", f"agent and {len(worker) - 1} executors"),
    ]


def _cpu(pids: list[int]) -> float:
    return sum(map(process_table.cpu_seconds, pids))
