"""The bench measures something, says with what, and ends."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_the_bench_gives_figures_as_json() -> None:
    command = [sys.executable, "-m", "penstock", "bench", "--parts", "drain,submit", "--scale", "0.01", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert answer.returncode == 0, answer.stderr
    report = json.loads(answer.stdout)
    assert report["command"] == " ".join(["penstock", *command[3:]])
    assert report["machine"]["fdatasync_ms"] > 0
    assert {figure["part"] for figure in report["figures"]} == {"drain", "submit"}
    assert all(figure["value"] > 0 for figure in report["figures"])
