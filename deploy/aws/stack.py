"""The whole system on AWS as one stack."""

from typing import Final

from aws_cdk import Aws, BootstraplessSynthesizer, CfnOutput, Stack, Tags
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_logs as logs
from constructs import Construct

from deploy.aws.alarms import Alarms
from deploy.aws.functions import BACKGROUND, ROUTES, Functions
from deploy.aws.job_types import JobType
from deploy.aws.network import Network
from deploy.aws.parameters import Parameters
from deploy.aws.policies import Places
from deploy.aws.queues import Queues
from deploy.aws.roles import Roles
from deploy.aws.storage import Storage
from deploy.aws.workers import Workers, family
from penstock.store.dynamodb.schema import INDEX_KEYS

NAME: Final = "Penstock"


class PenstockStack(Stack):
    """Seed 003 with Penstock's guarantees. It knows no account, no region and no asset."""

    def __init__(self, scope: Construct, job_types: list[JobType]) -> None:
        super().__init__(
            scope,
            NAME,
            synthesizer=BootstraplessSynthesizer(),
            description="Penstock: job queue and scheduler on DynamoDB, SQS, SNS, S3, Lambda and ECS",
        )
        self.parameters = parameters = Parameters(self)
        self.network = Network(self, parameters)
        self.storage = Storage(self, parameters)
        self.queues = Queues(self, job_types)
        self.cluster = self._cluster()
        self._worker_logs = logs.CfnLogGroup(
            self,
            "WorkerLogs",
            log_group_name=f"/penstock/{Aws.STACK_NAME}/workers",
            retention_in_days=parameters.log_days.value_as_number,
        )
        self.roles = Roles(self, self._places(job_types))
        self._add_workers(job_types)
        self.functions = Functions(
            self, parameters, self.storage, self.queues, self.roles, self._function_environment(job_types)
        )
        self.alarms.sweep(self.functions.functions["sweep"])
        self._tell()
        Tags.of(self).add("penstock:system", Aws.STACK_NAME)

    def _cluster(self) -> ecs.CfnCluster:
        return ecs.CfnCluster(
            self,
            "Cluster",
            cluster_name=Aws.STACK_NAME,
            cluster_settings=[ecs.CfnCluster.ClusterSettingsProperty(name="containerInsights", value="disabled")],
        )

    def _add_workers(self, job_types: list[JobType]) -> None:
        self.alarms = Alarms(self, self.parameters)
        workers = Workers(
            self,
            self.parameters,
            self.cluster,
            self._worker_logs,
            (self.roles.worker, self.roles.execution),
            self._environment(),
        )
        for one in job_types:
            definition = workers.define(one)
            self.alarms.oldest(one)
            self.alarms.dead(one, self.queues.dead[one.name])
            deep = self.alarms.deep(one, self.queues.tickets[one.name])
            if one.mode == "alarms":
                service = workers.serve(one, definition, self.network)
                workers.scale(one, service, deep, self.alarms.empty(one, self.queues.tickets[one.name]))

    def _places(self, job_types: list[JobType]) -> Places:
        table, partition = self.storage.table.attr_arn, f"arn:{Aws.PARTITION}"
        here = f"{Aws.REGION}:{Aws.ACCOUNT_ID}"
        return Places(
            table=table,
            indexes=tuple(f"{table}/index/{name}" for name in INDEX_KEYS),
            stream=self.storage.table.attr_stream_arn,
            bucket=self.storage.bucket.attr_arn,
            topic=self.storage.topic.ref,
            tickets=tuple(queue.attr_arn for queue in self.queues.tickets.values()),
            wake_ups=self.queues.wake_ups.attr_arn,
            registry=self.storage.registry.attr_arn,
            cluster=self.cluster.attr_arn,
            tasks=f"{partition}:ecs:{here}:task/{Aws.STACK_NAME}/*",
            # A new revision is made with each deployment; the sweep runs the newest.
            task_definitions=tuple(f"{partition}:ecs:{here}:task-definition/{family(one)}:*" for one in job_types),
            services=tuple(
                f"{partition}:ecs:{here}:service/{Aws.STACK_NAME}/{family(one)}"
                for one in job_types
                if one.mode == "alarms"
            ),
            worker_logs=f"{partition}:logs:{here}:log-group:/penstock/{Aws.STACK_NAME}/workers",
            logs={
                name: f"{partition}:logs:{here}:log-group:/penstock/{Aws.STACK_NAME}/{name}"
                for name in (*ROUTES, *BACKGROUND)
            },
        )

    def _environment(self) -> dict[str, str]:
        """The settings of workers and functions alike."""
        return {
            "PENSTOCK_STORE_URL": f"dynamodb://{self.storage.table.ref}?create=false",
            "PENSTOCK_BROKER_URL": f"sqs://{Aws.STACK_NAME}",
            "PENSTOCK_BROKER_CREATE": "false",
            # Without signals a change is found with the next look; with them each process has a queue of its own.
            "PENSTOCK_BROKER_SIGNALS": "none",
            "PENSTOCK_OBJECTS_URL": f"s3://{self.storage.bucket.ref}/jobs",
            "PENSTOCK_OBJECTS_REGION": Aws.REGION,
            "PENSTOCK_LOG_LEVEL": self.parameters.log_level.value_as_string,
            "PENSTOCK_LOG_FORMAT": "json",
        }

    def _function_environment(self, job_types: list[JobType]) -> dict[str, str]:
        return {
            **self._environment(),
            "PENSTOCK_FUNCTIONS_WAKE_QUEUE": self.queues.wake_ups.ref,
            "PENSTOCK_CONFIG_TEXT": "\n".join(map(_fleet_tables, job_types)),
            "PENSTOCK_FUNCTIONS_APP": self.parameters.app.value_as_string,
            "PENSTOCK_FLEET_BACKEND": "ecs",
            "PENSTOCK_ECS_CLUSTER": self.cluster.ref,
            "PENSTOCK_ECS_TASK_DEFINITION": f"{Aws.STACK_NAME}-{{fleet}}",
            "PENSTOCK_ECS_SERVICE": f"{Aws.STACK_NAME}-{{fleet}}",
            "PENSTOCK_ECS_SUBNETS": self.network.joined_subnets,
            "PENSTOCK_ECS_SECURITY_GROUPS": self.network.security_group.attr_group_id,
            "PENSTOCK_ECS_PUBLIC_IP": self.network.public_address,
            "PENSTOCK_SERVER_ALLOW_UNKNOWN_TYPES": "true",
        }

    def _tell(self) -> None:
        told = {
            "ApiUrl": self.functions.api.attr_api_endpoint,
            "ChangesTopic": self.storage.topic.ref,
            "ImageRepository": self.storage.registry.attr_repository_uri,
            "TableName": self.storage.table.ref,
            "BucketName": self.storage.bucket.ref,
            "ClusterName": self.cluster.ref,
        }
        for name, value in told.items():
            CfnOutput(self, name, value=value)


def _fleet_tables(one: JobType) -> str:
    """The fleet of a job type, as in penstock.toml."""
    fleet = f'[fleets.{one.name}]\nqueues = ["{one.name}"]\nmax = {one.max}\n'
    return fleet if one.mode == "autoscaler" else f'{fleet}[tasks.{one.name}]\nmode = "{one.mode}"\n'
