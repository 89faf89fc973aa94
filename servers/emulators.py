"""Emulators of AWS: dynoxide for DynamoDB, ministack for most of the rest, moto as a second opinion.

They know no accounts and check no signature. `make emulators` installs them in a folder of their own.
"""

import os
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from servers.launch import Launched, Missing

REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "penstock", "penstock-secret"
HOME = Path(__file__).resolve().parents[1] / ".emulators"


class Emulator(Launched):
    """A server of AWS APIs on loopback."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Dynoxide(Emulator):
    """DynamoDB in memory. It counts consumed capacity as AWS does; its streams do not work."""

    name = "dynoxide"

    def command(self) -> Sequence[str]:
        program = _installed("node_modules/@dynoxide/linux-x64/dynoxide")
        return [str(program), "serve", "--host", "127.0.0.1", "--port", str(self.port)]


class Moto(Emulator):
    """SQS, SNS and CloudFormation in memory. It is not atomic: no proof of a claim, a lease or a key."""

    name = "moto"

    def command(self) -> Sequence[str]:
        return [str(_installed("venv/bin/moto_server")), "-H", "127.0.0.1", "-p", str(self.port)]


class Ministack(Emulator):
    """DynamoDB, SQS, SNS, Lambda, API Gateway, CloudWatch, CloudFormation; and ECS, with containers of `engine`.

    With `policies` it checks signatures and lets roles call only what their policies allow; `ACCESS_KEY` may call all.
    With `trail` CloudTrail keeps every call. `environ` is also that of its functions.
    """

    name = "ministack"

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        *,
        engine: str | None = None,
        policies: bool = False,
        trail: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self._engine = engine
        self._policies = policies
        self._trail = trail
        self._environ = environ or {}

    def command(self) -> Sequence[str]:
        return [str(_installed("venv/bin/ministack"))]

    def environ(self) -> Mapping[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            **aws_environ(self.endpoint),
            **self._environ,
            "AUTH": str(self._policies).lower(),
            "CLOUDTRAIL_RECORDING": str(int(self._trail)),
            "CLOUDTRAIL_MAX_EVENTS": "1000000",
            "BIND_HOST": "127.0.0.1",
            "IOT_MTLS_ENABLED": "0",
            "GATEWAY_PORT": str(self.port),
            # Without a container engine, one that is not there: never the one of the machine.
            "DOCKER_HOST": self._engine or f"unix://{self.folder}/none.sock",
        }

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def aws_environ(endpoint: str) -> dict[str, str]:
    """The variables by which AWS clients use an emulator, and no account that this machine may know."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def _installed(path: str) -> Path:
    program = HOME / path
    if not program.exists():
        raise Missing(f"no {program.name}: run `make emulators`")
    return program
