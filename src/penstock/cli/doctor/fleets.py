"""Where the settings let workers run besides this machine: does the engine or cluster answer, and has it the image."""

from penstock.cli.doctor.finding import Finding, fail, ok, warn
from penstock.config import Settings
from penstock.model.errors import FleetUnavailable, MissingExtra
from penstock.model.extras import require

CONTAINERS = "containers"
KUBERNETES = "kubernetes"
OUR_CONTAINERS = {"penstock.system": "penstock"}
OUR_PODS = {"penstock/system": "penstock"}


async def examine(settings: Settings) -> list[Finding]:
    """The backend of the fleets; nothing for processes of this machine."""
    looks = {CONTAINERS: _containers, KUBERNETES: _pods}
    look = looks.get(settings.fleet.backend)
    if look is None:
        return []
    try:
        require(settings.fleet.backend)
    except MissingExtra as missing:
        return [fail(settings.fleet.backend, missing.missing, f"run: {missing.remedy}")]
    return [await look(settings)]


async def _containers(settings: Settings) -> Finding:
    from penstock.autoscaler.fleets.containers.engine import Engine

    fleet, engine = settings.fleet, Engine(settings.fleet.engine)
    try:
        there = await engine.containers(OUR_CONTAINERS)
        lacks = bool(fleet.image) and not await engine.has_image(fleet.image)
    except FleetUnavailable as trouble:
        remedy = "start Docker or `podman system service`, or correct fleet.engine"
        return fail(CONTAINERS, trouble.message, remedy)
    finally:
        await engine.close()
    if lacks:
        remedy = "build or pull it there; it is tried to be pulled when the first worker is wanted"
        return warn(CONTAINERS, f"{fleet.engine} answers and has no image {fleet.image}", remedy)
    return ok(CONTAINERS, f"{fleet.engine} answers and has {len(there)} containers of workers")


async def _pods(settings: Settings) -> Finding:
    from penstock.autoscaler.fleets.kubernetes.cluster import Cluster

    cluster = Cluster(None, settings.fleet.namespace or None)
    try:
        there = await cluster.pods(OUR_PODS)
    except FleetUnavailable as trouble:
        return fail(KUBERNETES, trouble.message, "run this where the autoscaler runs, or set KUBECONFIG")
    finally:
        await cluster.close()
    return ok(KUBERNETES, f"the cluster answers and has {len(there)} pods of workers")
