"""What the workers of a fleet are started as. Pure."""

from collections.abc import Mapping

from penstock.autoscaler.fleets import LaunchSpec
from penstock.config import variable
from penstock.model.fleet_plan import EffectiveFleet

EXCEPT_QUEUES = variable("worker.except_queues")


def launch_spec_of(standing: EffectiveFleet, app: str, environment: Mapping[str, str]) -> LaunchSpec:
    """The order for a fleet; `environment` is what every worker needs. The default fleet leaves the others' queues."""
    fleet = standing.fleet
    others = {EXCEPT_QUEUES: "".join(f"{queue}\n" for queue in standing.except_queues)}
    return LaunchSpec(
        fleet=standing.name,
        app=app,
        queues=standing.queues,
        capacity=fleet.capacity,
        image=fleet.image,
        command=fleet.command,
        environment={**environment, **fleet.environment, **(others if standing.except_queues else {})},
        cpus=fleet.cpus,
        memory_mib=fleet.memory_mib,
    )
