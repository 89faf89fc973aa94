"""The Lambda functions, what invokes them, and the HTTP API in front."""

import json
from typing import Final

from aws_cdk import Aws, Stack
from aws_cdk import aws_apigatewayv2 as gateway
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler

from deploy.aws.parameters import Parameters
from deploy.aws.queues import SWEEP_SECONDS, Queues
from deploy.aws.roles import Roles
from deploy.aws.storage import Storage
from penstock.store.dynamodb.schema import INDEX_KEYS, UNTOLD

RUNTIME: Final = "python3.14"
MEMORY: Final = 512
REQUEST_SECONDS: Final = 29
"""An HTTP API gives up after 30 s."""

ROUTES: Final = {
    "add": ("POST /v1/jobs", "POST /v1/jobs/batch"),
    "query": ("GET /v1/jobs", "GET /v1/jobs/{proxy+}"),
    "cancel": ("POST /v1/jobs/{job}/cancel",),
    "rest": ("$default",),
}
BACKGROUND: Final = ("sweep", "publish")
WAKE_UPS_AT_ONCE: Final = 2
"""Sweeps at once that wake-ups may start: the least that Lambda takes."""

STREAM_RECORDS: Final = 1000
UNTOLD_ONLY: Final = json.dumps({"dynamodb": {"NewImage": {INDEX_KEYS[UNTOLD][0]: {"S": [{"exists": True}]}}}})
ACCESS: Final = (
    '{"at":"$context.requestTime","id":"$context.requestId","ip":"$context.identity.sourceIp",'
    '"route":"$context.routeKey","status":"$context.status","ms":"$context.responseLatency"}'
)


class Functions:
    """`functions` by name; `api` is the HTTP API whose routes lead to four of them."""

    def __init__(
        self,
        stack: Stack,
        parameters: Parameters,
        storage: Storage,
        queues: Queues,
        roles: Roles,
        environment: dict[str, str],
    ) -> None:
        self._stack = stack
        self._parameters = parameters
        self._roles = roles
        self._environment = environment
        self.functions = {name: self._function(name) for name in (*ROUTES, *BACKGROUND)}
        self.api = self._api()
        self._each_minute()
        lambda_.CfnEventSourceMapping(
            stack,
            "WakeUpsToSweep",
            function_name=self.functions["sweep"].ref,
            event_source_arn=queues.wake_ups.attr_arn,
            batch_size=10,
            scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=WAKE_UPS_AT_ONCE),
        )
        lambda_.CfnEventSourceMapping(
            stack,
            "StreamToPublish",
            function_name=self.functions["publish"].ref,
            event_source_arn=storage.table.attr_stream_arn,
            starting_position="LATEST",
            # Only what is to be told wakes it; Lambda charges nothing for the rest.
            filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
                filters=[lambda_.CfnEventSourceMapping.FilterProperty(pattern=UNTOLD_ONLY)]
            ),
            batch_size=STREAM_RECORDS,
            maximum_batching_window_in_seconds=1,
            # A record only wakes it; what is to be told is in the table. So one that fails need not come again.
            maximum_retry_attempts=1,
        )

    def _function(self, name: str) -> lambda_.CfnFunction:
        log = self._log_group(name.capitalize(), name)
        seconds = REQUEST_SECONDS if name in ROUTES else SWEEP_SECONDS
        return lambda_.CfnFunction(
            self._stack,
            name.capitalize(),
            function_name=f"{Aws.STACK_NAME}-{name}",
            description=f"Penstock: {name}",
            handler=f"penstock.functions.handlers.{name}",
            runtime=RUNTIME,
            architectures=[self._parameters.architecture.value_as_string],
            memory_size=MEMORY,
            timeout=seconds,
            role=self._roles.arn(name),
            code=lambda_.CfnFunction.CodeProperty(
                s3_bucket=self._parameters.code_bucket.value_as_string,
                s3_key=self._parameters.code_key.value_as_string,
            ),
            environment=lambda_.CfnFunction.EnvironmentProperty(variables=self._environment),
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log.ref),
        )

    def _log_group(self, name: str, end: str) -> logs.CfnLogGroup:
        return logs.CfnLogGroup(
            self._stack,
            f"{name}Logs",
            log_group_name=f"/penstock/{Aws.STACK_NAME}/{end}",
            retention_in_days=self._parameters.log_days.value_as_number,
        )

    def _api(self) -> gateway.CfnApi:
        api = gateway.CfnApi(
            self._stack, "Api", name=Aws.STACK_NAME, protocol_type="HTTP", description="Penstock: jobs"
        )
        for name, routes in ROUTES.items():
            function = self.functions[name]
            integration = gateway.CfnIntegration(
                self._stack,
                f"{name.capitalize()}Integration",
                api_id=api.ref,
                integration_type="AWS_PROXY",
                integration_uri=function.attr_arn,
                payload_format_version="2.0",
            )
            for number, route in enumerate(routes, 1):
                gateway.CfnRoute(
                    self._stack,
                    f"{name.capitalize()}Route{number}",
                    api_id=api.ref,
                    route_key=route,
                    target=f"integrations/{integration.ref}",
                )
            lambda_.CfnPermission(
                self._stack,
                f"{name.capitalize()}Permission",
                action="lambda:InvokeFunction",
                function_name=function.ref,
                principal="apigateway.amazonaws.com",
                source_arn=f"arn:{Aws.PARTITION}:execute-api:{Aws.REGION}:{Aws.ACCOUNT_ID}:{api.ref}/*",
            )
        self._stage(api)
        return api

    def _stage(self, api: gateway.CfnApi) -> None:
        log = self._log_group("Access", "access")
        per_second = self._parameters.requests_per_second.value_as_number
        gateway.CfnStage(
            self._stack,
            "Stage",
            api_id=api.ref,
            stage_name="$default",
            auto_deploy=True,
            access_log_settings=gateway.CfnStage.AccessLogSettingsProperty(destination_arn=log.attr_arn, format=ACCESS),
            default_route_settings=gateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=per_second, throttling_burst_limit=per_second
            ),
        )

    def _each_minute(self) -> None:
        sweep = self.functions["sweep"]
        role = self._roles.scheduler(sweep.attr_arn)
        scheduler.CfnSchedule(
            self._stack,
            "EachMinute",
            description="Penstock: the net under the wake-ups of the sweep",
            schedule_expression="rate(1 minute)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=sweep.attr_arn,
                role_arn=role.attr_arn,
                input="{}",
                # The next one comes in a minute anyway.
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_retry_attempts=0, maximum_event_age_in_seconds=60
                ),
            ),
        )
