"""A fuzzer that reads the OpenAPI document finds nothing to complain about in a running server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SEED = "20261"
EXAMPLES = "20"

SERVER = """
[server]
port = 0
allow_unknown_types = true

[subscriptions.fuzzed]
url = "http://127.0.0.1:9/"

[limits]
wait_seconds = 0.01
body_bytes = 1048576
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A real server, without workers, in which no request waits."""
    config = tmp_path / "penstock.toml"
    config.write_text(SERVER)
    command = [sys.executable, "-m", "penstock", "up", "--json", "--no-workers"]
    command += ["--config", str(config), "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(), cwd=tmp_path) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_fuzzer_finds_nothing(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")]
    command += ["run", f"{url}/openapi.json", "--checks", "all", "--phases", "examples,coverage,fuzzing"]
    command += ["--max-examples", EXAMPLES, "--seed", SEED, "--generation-database", "none", "--no-color"]
    command += ["--wait-for-schema", "10"]
    ran = subprocess.run(command, capture_output=True, text=True, env=_environment(), cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2000:]


def _environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, "SCHEMATHESIS_HOOKS": "tests.http.schemathesis_hooks"}
