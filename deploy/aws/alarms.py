"""The alarms of each job type and of the sweep.

A queue without work tells CloudWatch nothing, so missing data never raises an alarm.
"""

from typing import Final

from aws_cdk import Aws, Fn, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from deploy.aws.job_types import JobType
from deploy.aws.parameters import Parameters

MINUTE: Final = 60
OLDEST_MINUTES: Final = 3
FAILED_SWEEPS: Final = 3


class Alarms:
    """Alarms are named `STACK-TYPE-what`."""

    def __init__(self, stack: Stack, parameters: Parameters) -> None:
        self._stack = stack
        self._parameters = parameters

    def deep(self, one: JobType, queue: sqs.CfnQueue) -> cloudwatch.CfnAlarm:
        """More tickets wait than DeepJobs."""
        return self._alarm(
            f"{one.id}Deep",
            f"{one.name}-deep",
            metric="ApproximateNumberOfMessagesVisible",
            queue=queue,
            comparison="GreaterThanThreshold",
            threshold=self._parameters.deep_jobs.value_as_number,
        )

    def empty(self, one: JobType, queue: sqs.CfnQueue) -> cloudwatch.CfnAlarm:
        """No ticket waits, for EmptyMinutes."""
        return self._alarm(
            f"{one.id}Empty",
            f"{one.name}-empty",
            metric="ApproximateNumberOfMessagesVisible",
            queue=queue,
            comparison="LessThanOrEqualToThreshold",
            threshold=0,
            minutes=self._parameters.empty_minutes.value_as_number,
        )

    def oldest(self, one: JobType) -> cloudwatch.CfnAlarm:
        """A job of this queue has waited for longer than OldestSeconds, as the sweep measures it in the table."""
        return self._alarm(
            f"{one.id}Oldest",
            f"{one.name}-oldest",
            namespace="Penstock",
            metric="OldestSeconds",
            dimensions={"Queue": one.name},
            comparison="GreaterThanThreshold",
            threshold=self._parameters.oldest_seconds.value_as_number,
            minutes=OLDEST_MINUTES,
        )

    def dead(self, one: JobType, queue: sqs.CfnQueue) -> cloudwatch.CfnAlarm:
        """A ticket was received again and again, and no worker claimed its job."""
        return self._alarm(
            f"{one.id}Dead",
            f"{one.name}-dead-letters",
            metric="ApproximateNumberOfMessagesVisible",
            queue=queue,
            comparison="GreaterThanThreshold",
            threshold=0,
        )

    def sweep(self, function: lambda_.CfnFunction) -> cloudwatch.CfnAlarm:
        """The sweep failed for several minutes: nothing is scaled, reclaimed or started late."""
        return self._alarm(
            "SweepErrors",
            "sweep-errors",
            namespace="AWS/Lambda",
            metric="Errors",
            statistic="Sum",
            dimensions={"FunctionName": function.ref},
            comparison="GreaterThanThreshold",
            threshold=0,
            minutes=FAILED_SWEEPS,
        )

    def _alarm(
        self,
        name: str,
        end: str,
        *,
        metric: str,
        comparison: str,
        threshold: float,
        queue: sqs.CfnQueue | None = None,
        namespace: str = "AWS/SQS",
        statistic: str = "Maximum",
        dimensions: dict[str, str] | None = None,
        minutes: float = 1,
    ) -> cloudwatch.CfnAlarm:
        named = {"QueueName": queue.attr_queue_name} if queue is not None else dimensions or {}
        return cloudwatch.CfnAlarm(
            self._stack,
            f"{name}Alarm",
            alarm_name=f"{Aws.STACK_NAME}-{end}",
            namespace=namespace,
            metric_name=metric,
            statistic=statistic,
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name=key, value=value) for key, value in named.items()],
            period=MINUTE,
            evaluation_periods=minutes,
            comparison_operator=comparison,
            threshold=threshold,
            treat_missing_data="notBreaching",
            alarm_actions=Token.as_list(
                Fn.condition_if(
                    self._parameters.tells_alarms.logical_id,
                    [self._parameters.alarm_topic.value_as_string],
                    Aws.NO_VALUE,
                )
            ),
        )
