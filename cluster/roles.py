"""The processes of Penstock itself, started as an operator starts them."""

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.jobs import WORKER
from servers import Launched
from servers.launch import free_port, wait_until

ROOT = Path(__file__).resolve().parents[1]
APP = "cluster.jobs:app"


class Role(Launched):
    """`penstock …` with the one settings file of the cluster; ready once its log says so."""

    def __init__(
        self, folder: Path, name: str, config: Path, environ: Mapping[str, str], *words: str, port: int = 0
    ) -> None:
        super().__init__(folder, port)
        self.name = name
        self._words = [*words, "--config", str(config)]
        self._environ = environ
        self._said = 0
        self._waits = True
        self._lives = 0

    @property
    def life(self) -> str:
        """Names this process, unlike the ones before it in its place."""
        return f"{self.name}/{self._lives}"

    def launch(self) -> None:
        """Start it without waiting for it; `await_ready` does."""
        self._waits = False
        self.start()
        self._waits = True

    def await_ready(self) -> None:
        wait_until(self._settled, f"{self.name} did not get ready; see {self.log}")
        if not self.alive:
            raise RuntimeError(f"{self.name} ended: {self.log.read_text()[-2000:]}")

    def command(self) -> Sequence[str]:
        self._lives += 1
        self._said = self.log.stat().st_size if self.log.exists() else 0
        return [sys.executable, "-m", "penstock", *self._words]

    def environ(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        return {
            **inherited,
            **self._environ,
            WORKER: self.life,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }

    def answers(self) -> bool:
        return not self._waits or self.says_ready()

    def says_ready(self) -> bool:
        with self.log.open("rb") as log:
            log.seek(self._said)
            return b"ready" in log.read()

    def ask_to_stop(self) -> None:
        """Send the signal, and do not wait."""
        os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> int:
        return self._running().wait()


class Api(Role):
    """Ready once it says that it can take jobs."""

    def __init__(self, folder: Path, name: str, config: Path, environ: Mapping[str, str]) -> None:
        port = free_port()
        super().__init__(folder, name, config, environ, "api", "--port", str(port), port=port)

    def says_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=1) as answer:
                return bool(json.load(answer)["status"] == "ok")
        except OSError:
            return False
