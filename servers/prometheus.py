"""Prometheus as Debian packages it, with a configuration of the test's."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers.launch import Launched, on_path


class Prometheus(Launched):
    """A Prometheus that forgets everything with its folder."""

    name = "prometheus"

    def __init__(self, folder: Path, config: Path, port: int = 0) -> None:
        super().__init__(folder, port)
        self._config = config

    def command(self) -> Sequence[str]:
        return [
            on_path("prometheus", "prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=1):
                return True
        except OSError:
            return False

    def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """The value of each series now, by its labels."""
        found = self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in found}

    def alerts(self) -> list[dict[str, str]]:
        """The labels of the alerts that fire."""
        return [one["labels"] for one in self._get("alerts")["alerts"] if one["state"] == "firing"]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]


def promtool(*words: str, given: str | None = None) -> str:
    """What promtool says about something that it finds in order; RuntimeError with what it says otherwise."""
    command = [on_path("promtool", "prometheus"), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=given)
    if done.returncode:
        raise RuntimeError(f"promtool {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr
