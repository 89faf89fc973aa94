"""How fast many jobs are accepted in batches."""

from penstock.cli.bench.figure import Amounts, Figure
from penstock.cli.bench.rig import BATCH, TYPE, Workshop


def bulk(workshop: Workshop, amounts: Amounts) -> list[Figure]:
    """Batches of a thousand through the SDK's client, one after the other."""
    with workshop.rig() as rig:
        rig.client.pause(TYPE)
        seconds = rig.load(amounts.bulk_jobs)
    return [Figure("bulk", "jobs accepted", amounts.bulk_jobs / seconds, "/s", f"{BATCH:,} per call, one caller")]
