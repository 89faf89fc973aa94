"""What is decided when the template is deployed. Only code, image and app have no default."""

from typing import Final

from aws_cdk import CfnCondition, CfnParameter, Fn, Stack, Token
from constructs import Construct

RETENTION_DAYS: Final = ("1", "3", "7", "14", "30", "90", "180", "365")


class Parameters(Construct):
    """The template's parameters, mappings and conditions, each named as it stands in the template."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, "Parameters")
        self._stack = stack
        self.code_bucket = self._text("CodeBucket", "S3 bucket of this region that holds the zip of `make lambda`.")
        self.code_key = self._text("CodeKey", "Key of the zip in that bucket; another key deploys another version.")
        self.image = self._text("Image", "Image of the workers, penstock with your app, as REPOSITORY:TAG.")
        self.app = self._text("App", "Your app in that image, as MODULE:APP.", r"[\w.]+:[\w.]+")
        self.architecture = self._choice(
            "Architecture", "Processor that zip and image were built for.", "x86_64", ("x86_64", "arm64")
        )
        self.vpc = self._text("VpcId", "Your VPC; empty makes one of two public subnets, without NAT.", default="")
        self.subnets = self._text(
            "SubnetIds", "With VpcId: subnets of it from which workers reach AWS, with commas between.", default=""
        )
        self.public_address = self._choice(
            "PublicAddress", "Whether workers get public addresses.", "true", ("true", "false")
        )
        self.log_days = self._choice("LogDays", "Days that logs are kept.", "30", RETENTION_DAYS, kind="Number")
        self.log_level = self._choice(
            "LogLevel", "Least important messages to log.", "info", ("debug", "info", "warning", "error")
        )
        self.object_days = self._number(
            "ObjectDays", "Days after which inputs, outputs and large values are removed; at least as long as jobs.", 31
        )
        self.deep_jobs = self._number("DeepJobs", "The alarm `deep`: more waiting tickets than this.", 0)
        self.empty_minutes = self._number(
            "EmptyMinutes", "The alarm `empty`: no ticket for this many minutes.", 5, least=1
        )
        self.oldest_seconds = self._number(
            "OldestSeconds", "The alarm `oldest`: a job has waited for longer than this.", 900, least=1
        )
        self.alarm_topic = self._text(
            "AlarmTopic", "Topic that is told of alarms, by its ARN; empty: none.", default=""
        )
        self.requests_per_second = self._number(
            "RequestsPerSecond", "Most requests a second that the API takes; more are answered with 429.", 200, least=1
        )
        self.own_network = CfnCondition(
            stack, "OwnNetwork", expression=Fn.condition_equals(self.vpc.value_as_string, "")
        )
        self.tells_alarms = CfnCondition(
            stack,
            "TellsAlarms",
            expression=Fn.condition_not(Fn.condition_equals(self.alarm_topic.value_as_string, "")),
        )
        public = CfnCondition(
            stack, "Public", expression=Fn.condition_equals(self.public_address.value_as_string, "true")
        )
        self.assign_public_ip = Token.as_string(Fn.condition_if(public.logical_id, "ENABLED", "DISABLED"))
        arm = CfnCondition(stack, "Arm", expression=Fn.condition_equals(self.architecture.value_as_string, "arm64"))
        self.processor = Token.as_string(Fn.condition_if(arm.logical_id, "ARM64", "X86_64"))

    def _text(
        self, name: str, description: str, pattern: str | None = None, default: str | None = None
    ) -> CfnParameter:
        least = 1 if default is None else None
        return CfnParameter(
            self._stack, name, description=description, allowed_pattern=pattern, default=default, min_length=least
        )

    def _choice(
        self, name: str, description: str, default: str, values: tuple[str, ...], *, kind: str = "String"
    ) -> CfnParameter:
        return CfnParameter(
            self._stack, name, type=kind, description=description, default=default, allowed_values=list(values)
        )

    def _number(self, name: str, description: str, default: int, *, least: int = 0) -> CfnParameter:
        return CfnParameter(self._stack, name, type="Number", description=description, default=default, min_value=least)
