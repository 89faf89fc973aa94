"""The demo is a test of everything at once: it checks what it tells."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHAPTERS = ("submit and wait", "bulk", "retry", "timeout", "cancel", "killed worker", "output file", "burst")


def test_the_demo_tells_its_whole_story_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "penstock", "demo", "--jobs", "500"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert told.returncode == 0, told.stderr
    assert all(f"\n  {chapter}" in told.stdout for chapter in CHAPTERS)
    assert "All as told" in told.stdout
    assert list(tmp_path.iterdir()) == []
