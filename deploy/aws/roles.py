"""One role for each function, for the workers and for what starts them, with the statements of policies.py."""

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam

from deploy.aws.policies import Allow, Places, execution, statements_of


class Roles:
    """Roles by the name of what takes them: a function, or `worker`."""

    def __init__(self, stack: Stack, places: Places) -> None:
        self._stack = stack
        self._places = places
        self.execution = self._role("Execution", "ecs-tasks.amazonaws.com", execution(places))
        self.worker = self._role("Worker", "ecs-tasks.amazonaws.com", statements_of("worker", places))
        places.passed_roles = (self.worker.attr_arn, self.execution.attr_arn)
        self._functions = {
            name: self._role(name.capitalize(), "lambda.amazonaws.com", statements_of(name, places))
            for name in ("add", "query", "cancel", "rest", "sweep", "publish")
        }

    def arn(self, name: str) -> str:
        return self._functions[name].attr_arn

    def scheduler(self, function: str) -> iam.CfnRole:
        """The role with which EventBridge Scheduler invokes a function."""
        allowed = [Allow("lambda", ("InvokeFunction",), (function,))]
        return self._role("Scheduler", "scheduler.amazonaws.com", allowed)

    def _role(self, name: str, service: str, allowed: list[Allow]) -> iam.CfnRole:
        return iam.CfnRole(
            self._stack,
            f"{name}Role",
            description=f"Penstock {Aws.STACK_NAME}: {name.lower()}",
            assume_role_policy_document=_assumed_by(service),
            policies=[
                iam.CfnRole.PolicyProperty(
                    policy_name="calls",
                    policy_document=iam.PolicyDocument(statements=[_statement(one) for one in allowed], minimize=False),
                )
            ],
        )


def _assumed_by(service: str) -> iam.PolicyDocument:
    statement = iam.PolicyStatement(
        actions=["sts:AssumeRole"],
        principals=[iam.ServicePrincipal(service)],
        conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}} if service.startswith("scheduler") else None,
    )
    return iam.PolicyDocument(statements=[statement])


def _statement(allow: Allow) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        actions=[f"{allow.service}:{action}" for action in allow.actions],
        resources=list(allow.resources),
        conditions=dict(allow.condition) if allow.condition else None,
    )
