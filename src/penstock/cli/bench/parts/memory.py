"""How much memory each process takes."""

from penstock.cli.bench import process_table
from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import Rig, Workshop


def memory(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Resident memory of server, agent and executors: idle, and after a drain. Nothing where there is no /proc."""
    if not process_table.AVAILABLE:
        return []
    with workshop.rig() as rig:
        idle = _resident(rig, "idle")
        rig.drained(amounts.few_jobs)
        return idle + _resident(rig, f"after {amounts.few_jobs:,} jobs")


def _resident(rig: Rig, when: str) -> list[Figure]:
    agents = process_table.children_of(rig.pid)
    executors = [pid for agent in agents for pid in process_table.children_of(agent)]
    named = {"server": [rig.pid], "agent": agents, "executor": executors}
    return [
        Figure("memory", f"{name}, {when}", max(map(process_table.resident_mib, pids)), "MiB", _how_many(pids))
        for name, pids in named.items()
        if pids
    ]


def _how_many(pids: list[int]) -> str:
    return f"the largest of {len(pids)}" if len(pids) > 1 else ""
