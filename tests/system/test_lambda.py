"""The package of the Lambda functions: small, the same each time, with all that the code calls; and it runs."""

import hashlib
import json
import re
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pytest

from penstock.functions.host import FunctionHost, read_settings
from tests.emulators import ministack, use_emulator
from tests.gateway import FunctionClient, gateway_event, sweep_until_queued
from tests.sns_topic import make_client
from tests.system.harness import ROOT
from tools import lambda_package

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("lambda") / "lambda.zip"
    assert lambda_package.main([str(target)]) == 0
    return target


def test_the_same_checkout_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    assert lambda_package.main([str(again)]) == 0
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(package.read_bytes()).digest()


def test_it_is_small_and_holds_what_functions_need(package: Path) -> None:
    entries = zipfile.ZipFile(package).infolist()
    names = {one.filename for one in entries}
    assert sum(one.file_size for one in entries) <= lambda_package.MOST_UNPACKED
    assert package.stat().st_size < 50_000_000
    assert {"penstock/functions/handlers.py", "penstock/functions/__init__.py", "mangum/__init__.py"} <= names
    assert any(name.startswith("penstock/functions/__pycache__/handlers.") for name in names)
    assert not [name for name in names if name.startswith(("psycopg", "redis", "apsw", "penstock/lab"))]


def test_botocore_keeps_the_services_that_the_code_calls(package: Path) -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "penstock").rglob("*.py"))
    called = set(re.findall(r"(?:AwsService\.open|open_service)\(\s*\"([a-z0-9]+)\"", sources))
    assert {"sqs", "sns"} <= called <= set(lambda_package.SERVICES)
    data = {name.split("/")[2] for name in zipfile.ZipFile(package).namelist() if name.startswith("botocore/data/")}
    assert set(lambda_package.SERVICES) <= data


class Deployed:
    """Functions of the package on ministack, over its DynamoDB and SQS."""

    def __init__(self, package: Path) -> None:
        endpoint = ministack().endpoint
        self._name = name = uuid.uuid4().hex[:8]
        self._lambda = make_client("lambda", endpoint)
        self.variables = {
            "AWS_ENDPOINT_URL": endpoint,
            "PENSTOCK_STORE_URL": f"dynamodb://jobs-{name}",
            "PENSTOCK_BROKER_URL": f"sqs://jobs-{name}",
            "PENSTOCK_SERVER_ALLOW_UNKNOWN_TYPES": "true",
            "PENSTOCK_SERVER_DATA": "/tmp/penstock",
            "PENSTOCK_FUNCTIONS_WAKE_QUEUE": f"{endpoint}/000000000000/wake-{name}",
        }
        make_client("sqs", endpoint).create_queue(QueueName=f"wake-{name}")
        self._code = package.read_bytes()

    def deploy(self, function: str) -> None:
        self._lambda.create_function(
            FunctionName=f"{self._name}-{function}",
            Runtime="python3.11",
            Role="arn:aws:iam::123456789012:role/penstock",
            Handler=f"penstock.functions.handlers.{function}",
            Code={"ZipFile": self._code},
            Environment={"Variables": self.variables},
            Timeout=60,
            MemorySize=512,
        )

    def invoke(self, function: str, event: dict[str, Any]) -> dict[str, Any]:
        answer = self._lambda.invoke(FunctionName=f"{self._name}-{function}", Payload=json.dumps(event))
        told: dict[str, Any] = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, told
        return told


def test_the_built_package_adds_and_sweeps_as_functions_of_lambda(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_emulator(monkeypatch, ministack())
    deployed = Deployed(package)
    here = FunctionHost(read_settings(deployed.variables))
    client = FunctionClient(here)
    deployed.deploy("add")
    headers = {"authorization": f"Bearer {client.key}"}
    asked = gateway_event("POST", "/v1/jobs", {"type": "mail", "delay_seconds": 1}, headers=headers)
    added = deployed.invoke("add", asked)
    assert added["statusCode"] == 201, added
    job = json.loads(added["body"])["id"]
    assert client.ask("query", "GET", f"/v1/jobs/{job}")["body"]["id"] == job
    deployed.deploy("sweep")
    swept = sweep_until_queued(client, job, lambda: deployed.invoke("sweep", {}))
    assert swept["wake_seconds"] is not None
    here.close()
