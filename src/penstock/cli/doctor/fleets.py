"""Where the settings let workers run besides this machine: does the engine or cluster answer, and has it the image."""

from penstock.cli.doctor.backends import lacking
from penstock.cli.doctor.finding import Finding, fail, ok, warn
from penstock.config import Settings
from penstock.model.errors import FleetUnavailable

FLEETS = "fleets"
OUR_CONTAINERS = {"penstock.system": "penstock"}
OUR_PODS = {"penstock/system": "penstock"}


async def examine(settings: Settings) -> list[Finding]:
    """The backend of the fleets; nothing for processes of this machine."""
    match settings.fleet.backend:
        case "containers":
            return [lacking(FLEETS, "containers") or await _containers(settings)]
        case "kubernetes":
            return [lacking(FLEETS, "kubernetes") or await _pods(settings)]
        case _:
            return []


async def _containers(settings: Settings) -> Finding:
    from penstock.autoscaler.backends.containers.engine import ContainerEngine

    fleet, engine = settings.fleet, ContainerEngine(settings.fleet.engine)
    try:
        there = await engine.containers(OUR_CONTAINERS)
        lacks = bool(fleet.image) and not await engine.has_image(fleet.image)
    except FleetUnavailable as error:
        remedy = "start Docker or `podman system service`, or correct fleet.engine"
        return fail(FLEETS, error.message, remedy)
    finally:
        await engine.close()
    if lacks:
        remedy = "build or pull it there; it is tried to be pulled when the first worker is wanted"
        return warn(FLEETS, f"{fleet.engine} answers and has no image {fleet.image}", remedy)
    return ok(FLEETS, f"{fleet.engine} answers and has {len(there)} containers of workers")


async def _pods(settings: Settings) -> Finding:
    from penstock.autoscaler.backends.kubernetes.cluster import Cluster

    cluster = Cluster(None, settings.fleet.namespace or None)
    try:
        there = await cluster.pods(OUR_PODS)
    except FleetUnavailable as error:
        return fail(FLEETS, error.message, "run this where the autoscaler runs, or set KUBECONFIG")
    finally:
        await cluster.close()
    return ok(FLEETS, f"the cluster answers and has {len(there)} pods of workers")
