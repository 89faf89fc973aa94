"""Settings of fleets: the default one, where workers run, and the tasks of those that run on Amazon ECS."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from penstock.model.fleets import MOST_WORKERS, Fleet
from penstock.model.names import whole

TaskMode: TypeAlias = Literal["autoscaler", "alarms"]
VariableName = Annotated[str, whole("[A-Za-z_][A-Za-z0-9_]*", max_length=200)]


class FleetSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The default fleet: the workers of every queue that has no fleet of its own; and how all fleets are watched."""

    min: Annotated[int, Meta(description="Fewest workers of the default fleet.", ge=0, le=MOST_WORKERS)] = 0
    max: Annotated[int, Meta(description="Most workers of the default fleet.", ge=1, le=MOST_WORKERS)] = 10
    declared_max: Annotated[
        int,
        Meta(
            description="Most workers of a fleet that is declared beside a job type; `[fleets.NAME]` and "
            "`penstock fleets set` may allow more.",
            ge=1,
            le=MOST_WORKERS,
        ),
    ] = 100
    target_wait_seconds: Annotated[
        float, Meta(description="How soon nearly every job of the default fleet should start.", gt=0)
    ] = 5.0
    capacity: Annotated[
        int, Meta(description="Jobs run at once by a worker of the default fleet; 0 means as its worker says.", ge=0)
    ] = 0
    image: Annotated[str, Meta(description="Image of containers and pods whose fleet names none.")] = ""
    backend: Annotated[
        Literal["processes", "containers", "kubernetes", "ecs"],
        Meta(description="Where workers run: `processes` of this machine, `containers`, `kubernetes` or `ecs`."),
    ] = "processes"
    engine: Annotated[str, Meta(description="Container engine, as its Docker API is reached.")] = (
        "unix:///var/run/docker.sock"
    )
    network: Annotated[str, Meta(description="Network of the containers; empty leaves it to the engine.")] = ""
    binds: Annotated[
        tuple[str, ...], Meta(description="Folders of the engine's machine for all containers, as `/from:/to:ro`.")
    ] = ()
    pass_environment: Annotated[
        tuple[VariableName, ...],
        Meta(
            description="Variables that every container gets from the autoscaler's environment, where they are set: by "
            "default what PostgreSQL and S3 URLs leave out."
        ),
    ] = (
        "PGUSER",
        "PGPASSWORD",
        "PGSSLMODE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
    )
    namespace: Annotated[str, Meta(description="Kubernetes namespace; empty means that of the credentials.")] = ""
    secrets: Annotated[
        tuple[str, ...], Meta(description="Kubernetes Secrets whose entries every pod gets as variables.")
    ] = ()
    join_seconds: Annotated[
        float, Meta(description="A worker of any fleet that has not joined in this time is ended.", gt=0)
    ] = 120.0

    @property
    def default(self) -> Fleet:
        """The default fleet, as it is before penstock.toml and operators change it."""
        return Fleet(
            min=self.min,
            max=self.max,
            target_wait=self.target_wait_seconds,
            capacity=self.capacity or None,
            image=self.image or None,
        )


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
