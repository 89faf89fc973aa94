"""The cloud of a run: podman, ministack and the deployed stack, ended together."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from cluster.aws.emulation import Differences, emulated
from cluster.aws.load import GatewayCaller
from cluster.aws.task import CREDENTIALS
from cluster.aws.timing import FUNCTION_ENVIRON, WORKER_ENVIRON
from cluster.jobs import LEDGER
from cluster.roles import ROOT
from servers import Ministack, Podman, aws_environ
from servers.podman import IMAGE

STACK = "jobs"
FUNCTIONS = ("add", "query", "cancel", "rest", "sweep", "publish")
WORKER = "worker"
CODE_BUCKET = "code"
APP = "cluster.aws.jobs:app"
TEMPLATE = ROOT / "deploy" / "aws" / "template.json"
DEPLOYED_WITHIN = 60.0
TRIES = 5


class NotDeployed(Exception):
    """The stack could not be made; the message says which resource failed."""


class Cloud:
    """What runs and what was deployed. Calls to AWS by `client` are those of the account's owner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger" / "ledger.jsonl"
        self.histories = folder / "histories"
        self.podman = Podman(folder / "podman")
        self.ministack = Ministack(folder / "ministack", engine=self.podman.url, policies=True, trail=True)
        self.outputs: dict[str, str] = {}
        self._seen: dict[str, set[str]] = {name: set() for name in FUNCTIONS}
        self.key = ""

    @cached_property
    def _session(self) -> Any:
        from botocore.session import Session

        session = Session()
        session.set_credentials(self.environ["AWS_ACCESS_KEY_ID"], self.environ["AWS_SECRET_ACCESS_KEY"])
        return session

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a command that calls AWS as the owner of the account."""
        return aws_environ(self.ministack.endpoint)

    def client(self, service: str) -> Any:
        return self._session.create_client(
            service, region_name=self.environ["AWS_REGION"], endpoint_url=self.ministack.endpoint
        )

    def caller(self) -> GatewayCaller:
        """A client of the API, through API Gateway."""
        host = self.outputs["ApiUrl"].removeprefix("http://")
        return GatewayCaller(self.ministack.port, host, self.key)

    def start(self, undo: ExitStack) -> None:
        for folder in (self.ledger.parent, self.histories):
            folder.mkdir(parents=True)
        undo.enter_context(self.podman)
        undo.enter_context(self.ministack)

    def deploy(self, code: Path) -> None:
        """Make the stack of the shipped template, and the first API key."""
        storage, stacks = self.client("s3"), self.client("cloudformation")
        storage.create_bucket(Bucket=CODE_BUCKET)
        storage.put_object(Bucket=CODE_BUCKET, Key=code.name, Body=code.read_bytes())
        template = emulated(json.loads(TEMPLATE.read_text()), self._differences())
        # By URL: the template is longer than what a call may carry.
        storage.put_object(Bucket=CODE_BUCKET, Key=TEMPLATE.name, Body=json.dumps(template).encode())
        parameters = {"CodeBucket": CODE_BUCKET, "CodeKey": code.name, "Image": IMAGE, "App": APP}
        stacks.create_stack(
            StackName=STACK,
            TemplateURL=f"{self.ministack.endpoint}/{CODE_BUCKET}/{TEMPLATE.name}",
            Capabilities=["CAPABILITY_IAM"],
            Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
        )
        self.outputs = self._await_stack(stacks)
        self._write_credentials()
        self.key = self._create_key()

    def functions(self, name: str) -> list[psutil.Process]:
        """The processes in which a function runs, or waits for its next invocation."""
        found = []
        for process in psutil.Process(self.ministack.pid).children(recursive=True):
            try:
                if process.environ().get("AWS_LAMBDA_FUNCTION_NAME") == f"{STACK}-{name}":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def access_keys(self) -> dict[str, set[str]]:
        """The access keys by which the calls of each function, and of the workers, can be known."""
        self.note_functions()
        return {**self._seen, WORKER: {json.loads(self._credentials.read_text())["AWS_ACCESS_KEY_ID"]}}

    def note_functions(self) -> None:
        """Remember the access keys of functions that run now: a process of one may be gone later."""
        for name in FUNCTIONS:
            for process in self.functions(name):
                with suppress(psutil.Error):
                    self._seen[name].add(process.environ()["AWS_ACCESS_KEY_ID"])

    def _await_stack(self, stacks: Any) -> dict[str, str]:
        pause, deadline = threading.Event(), time.monotonic() + DEPLOYED_WITHIN
        while True:
            [stack] = stacks.describe_stacks(StackName=STACK)["Stacks"]
            if stack["StackStatus"] == "CREATE_COMPLETE":
                return {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
            if not stack["StackStatus"].endswith("IN_PROGRESS") or time.monotonic() > deadline:
                events = stacks.describe_stack_events(StackName=STACK)["StackEvents"]
                failed = [one for one in events if one["ResourceStatus"].endswith("FAILED")]
                why = [f"{one['LogicalResourceId']}: {one.get('ResourceStatusReason')}" for one in failed]
                raise NotDeployed(f"the stack is {stack['StackStatus']}: {'; '.join(why)}")
            pause.wait(0.1)

    def _write_credentials(self) -> None:
        """Those of the workers' role, where its tasks take them from."""
        resource = self.client("cloudformation").describe_stack_resource(
            StackName=STACK, LogicalResourceId="WorkerRole"
        )
        role = self.client("iam").get_role(RoleName=resource["StackResourceDetail"]["PhysicalResourceId"])["Role"]
        given = self.client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName=WORKER)["Credentials"]
        environ = {
            **self.environ,
            "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
            "AWS_SESSION_TOKEN": given["SessionToken"],
        }
        self._credentials.write_text(json.dumps(environ))

    @property
    def _credentials(self) -> Path:
        return self.ledger.parent / "credentials.json"

    def _create_key(self) -> str:
        made = self.run_penstock("keys", "create", "--direct", "--name", "run", "--scope", "admin", "--json")
        return str(json.loads(made)["key"])

    def run_penstock(self, *words: str) -> str:
        """What a command prints that goes to the table itself."""
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PENSTOCK_"))},
            **self.environ,
            "PENSTOCK_STORE_URL": f"dynamodb://{self.outputs['TableName']}?create=false",
            "PENSTOCK_BROKER_URL": f"sqs://{STACK}",
            "PYTHONPATH": str(ROOT / "src"),
        }
        command = [sys.executable, "-m", "penstock", *words]
        pause, told = threading.Event(), ""
        for _ in range(TRIES):
            done = subprocess.run(command, env=environ, cwd=self.folder, capture_output=True, text=True, timeout=60)
            if not done.returncode:
                return done.stdout
            # A machine that is busy with other things may be too slow for the first answer.
            told = done.stderr or done.stdout
            pause.wait(1)
        raise RuntimeError(f"penstock {' '.join(words)} failed: {told}")

    def _differences(self) -> Differences:
        objects = {"PENSTOCK_OBJECTS_ENDPOINT": self.ministack.endpoint}
        return Differences(
            image=IMAGE,
            program=[sys.executable, "-m", "cluster.aws.task"],
            mounts=[bind.split(":")[0] for bind in Podman.binds()],
            written=[str(self.ledger.parent)],
            worker_environ={
                LEDGER: str(self.ledger),
                CREDENTIALS: str(self._credentials),
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                **objects,
                **WORKER_ENVIRON,
            },
            function_environ={**objects, **FUNCTION_ENVIRON},
        )


@contextmanager
def running(folder: Path, code: Path) -> Iterator[Cloud]:
    """A cloud with the deployed stack while the body runs; nothing of it is left afterwards."""
    with ExitStack() as undo:
        cloud = Cloud(folder)
        cloud.start(undo)
        cloud.deploy(code)
        yield cloud
