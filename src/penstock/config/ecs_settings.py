"""Settings of fleets that run as tasks of Amazon ECS: the section `[ecs]`, and `[tasks.NAME]` for single fleets."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

TaskMode: TypeAlias = Literal["autoscaler", "alarms"]


class EcsSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tasks of Amazon ECS, for `fleet.backend = "ecs"`. `[tasks.NAME]` says for a single fleet what differs."""

    cluster: Annotated[str, Meta(description="Cluster whose tasks are workers.")] = "default"
    mode: Annotated[
        TaskMode,
        Meta(
            description="`autoscaler`: this autoscaler starts and stops the tasks. `alarms`: a service per fleet that "
            "CloudWatch alarms scale; the autoscaler only watches it."
        ),
    ] = "autoscaler"
    task_definition: Annotated[
        str,
        Meta(description="Task definition of the workers, with or without a revision; `{fleet}` stands for the fleet."),
    ] = ""
    container: Annotated[str, Meta(description="Container of the task definition that runs the worker.")] = "worker"
    service: Annotated[
        str, Meta(description="Service of a fleet that alarms scale; `{fleet}` stands for the fleet.")
    ] = "{fleet}"
    subnets: Annotated[tuple[str, ...], Meta(description="Subnets of the tasks; Fargate needs at least one.")] = ()
    security_groups: Annotated[tuple[str, ...], Meta(description="Security groups of the tasks.")] = ()
    public_ip: Annotated[
        bool, Meta(description="Give tasks a public address: in public subnets they reach AWS without a NAT gateway.")
    ] = False
    capacity_providers: Annotated[
        tuple[str, ...],
        Meta(description="Where tasks are placed, as `FARGATE_SPOT=3`; empty means launch type FARGATE."),
    ] = ()


class TaskTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[tasks.NAME]`: what differs for the fleet of this name."""

    mode: TaskMode | None = None
    task_definition: str | None = None
    container: str | None = None
    service: str | None = None
    subnets: tuple[str, ...] | None = None
    security_groups: tuple[str, ...] | None = None
    public_ip: bool | None = None
    capacity_providers: tuple[str, ...] | None = None
