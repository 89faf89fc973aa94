"""The cluster, and for each job type a task definition; in mode alarms also a service and how it is scaled."""

from typing import Final

from aws_cdk import Aws, Stack
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs

from deploy.aws.job_types import JobType
from deploy.aws.network import Network
from deploy.aws.parameters import Parameters

STOP_SECONDS: Final = 120
"""The longest time that Fargate gives a task between SIGTERM and SIGKILL."""

COOLDOWN_SECONDS: Final = 60


class Workers:
    """`definitions` by job type. Nothing runs at first: every desired count is 0."""

    def __init__(
        self,
        stack: Stack,
        parameters: Parameters,
        cluster: ecs.CfnCluster,
        log: logs.CfnLogGroup,
        roles: tuple[iam.CfnRole, iam.CfnRole],
        environment: dict[str, str],
    ) -> None:
        self._stack = stack
        self._parameters = parameters
        self._cluster = cluster
        self._log = log
        self._role, self._execution = roles
        self._environment = environment

    def define(self, one: JobType) -> ecs.CfnTaskDefinition:
        """The task definition of a job type: one container that works its queue."""
        own = {"PENSTOCK_WORKER_QUEUES": one.name, **self._environment}
        if one.mode == "alarms":
            own["PENSTOCK_WORKER_TASK_PROTECTION"] = "true"
        return ecs.CfnTaskDefinition(
            self._stack,
            f"{one.id}Task",
            family=family(one),
            cpu=str(one.cpu),
            memory=str(one.memory),
            network_mode="awsvpc",
            requires_compatibilities=["FARGATE"],
            runtime_platform=ecs.CfnTaskDefinition.RuntimePlatformProperty(
                cpu_architecture=self._parameters.processor, operating_system_family="LINUX"
            ),
            task_role_arn=self._role.attr_arn,
            execution_role_arn=self._execution.attr_arn,
            container_definitions=[
                ecs.CfnTaskDefinition.ContainerDefinitionProperty(
                    name="worker",
                    image=self._parameters.image.value_as_string,
                    essential=True,
                    command=["worker", self._parameters.app.value_as_string, "--direct"],
                    readonly_root_filesystem=False,
                    stop_timeout=STOP_SECONDS,
                    linux_parameters=ecs.CfnTaskDefinition.LinuxParametersProperty(init_process_enabled=True),
                    environment=[
                        ecs.CfnTaskDefinition.KeyValuePairProperty(name=name, value=value)
                        for name, value in own.items()
                    ],
                    log_configuration=ecs.CfnTaskDefinition.LogConfigurationProperty(
                        log_driver="awslogs",
                        options={
                            "awslogs-group": self._log.ref,
                            "awslogs-region": Aws.REGION,
                            "awslogs-stream-prefix": one.name,
                            # A log that is slow to be taken must not stop a worker.
                            "mode": "non-blocking",
                        },
                    ),
                )
            ],
        )

    def serve(self, one: JobType, definition: ecs.CfnTaskDefinition, network: Network) -> ecs.CfnService:
        """The service of a job type whose desired count the alarms change, from 0 and back."""
        return ecs.CfnService(
            self._stack,
            f"{one.id}Service",
            service_name=family(one),
            cluster=self._cluster.ref,
            task_definition=definition.ref,
            desired_count=0,
            launch_type="FARGATE",
            propagate_tags="SERVICE",
            enable_ecs_managed_tags=True,
            deployment_configuration=ecs.CfnService.DeploymentConfigurationProperty(
                maximum_percent=200, minimum_healthy_percent=0
            ),
            network_configuration=ecs.CfnService.NetworkConfigurationProperty(
                awsvpc_configuration=ecs.CfnService.AwsVpcConfigurationProperty(
                    subnets=network.subnets,
                    security_groups=[network.security_group.attr_group_id],
                    assign_public_ip=network.assign_public_ip,
                )
            ),
        )

    def scale(
        self, one: JobType, service: ecs.CfnService, deep: cloudwatch.CfnAlarm, empty: cloudwatch.CfnAlarm
    ) -> None:
        """Let the alarm `deep` add workers and `empty` take them all away.

        A worker that runs jobs is protected by itself, so that only idle ones are stopped.
        """
        target = scaling.CfnScalableTarget(
            self._stack,
            f"{one.id}Scaling",
            service_namespace="ecs",
            scalable_dimension="ecs:service:DesiredCount",
            resource_id=f"service/{self._cluster.ref}/{service.attr_name}",
            min_capacity=0,
            max_capacity=one.max,
        )
        more = self._policy(one, target, "Out", "ChangeInCapacity", _steps_out(one))
        none = self._policy(one, target, "In", "ExactCapacity", [_step(0, at_most=0.0)])
        deep.alarm_actions = [more.ref]
        empty.alarm_actions = [none.ref]

    def _policy(
        self,
        one: JobType,
        target: scaling.CfnScalableTarget,
        way: str,
        adjustment: str,
        steps: list[scaling.CfnScalingPolicy.StepAdjustmentProperty],
    ) -> scaling.CfnScalingPolicy:
        return scaling.CfnScalingPolicy(
            self._stack,
            f"{one.id}Scale{way}",
            policy_name=f"{family(one)}-{way.lower()}",
            policy_type="StepScaling",
            scaling_target_id=target.ref,
            step_scaling_policy_configuration=scaling.CfnScalingPolicy.StepScalingPolicyConfigurationProperty(
                adjustment_type=adjustment,
                cooldown=COOLDOWN_SECONDS,
                metric_aggregation_type="Maximum",
                step_adjustments=steps,
            ),
        )


def family(one: JobType) -> str:
    return f"{Aws.STACK_NAME}-{one.name}"


def _steps_out(one: JobType) -> list[scaling.CfnScalingPolicy.StepAdjustmentProperty]:
    """One worker for the first ticket, half of them above 100, all above 1,000; `max` bounds the sum."""
    bounds = (0.0, 100.0, 1000.0)
    counts = (1, max(1, one.max // 2), one.max)
    return [
        _step(count, at_least=low, at_most=high)
        for count, low, high in zip(counts, bounds, (*bounds[1:], None), strict=True)
    ]


def _step(
    adjustment: int, *, at_least: float | None = None, at_most: float | None = None
) -> scaling.CfnScalingPolicy.StepAdjustmentProperty:
    return scaling.CfnScalingPolicy.StepAdjustmentProperty(
        scaling_adjustment=adjustment,
        metric_interval_lower_bound=at_least,
        metric_interval_upper_bound=at_most,
    )
