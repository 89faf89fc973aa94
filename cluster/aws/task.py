"""A task's first program here: takes the credentials of its role from a file, and becomes the worker.

On AWS the agent of ECS gives them out. The emulator's are of no role that it knows.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

from cluster.jobs import WORKER

CREDENTIALS = "CLUSTER_CREDENTIALS"
METADATA = "ECS_CONTAINER_METADATA_URI_V4"


def main() -> None:
    os.environ.update(json.loads(Path(os.environ[CREDENTIALS]).read_text()))
    with urllib.request.urlopen(f"{os.environ[METADATA]}/task", timeout=10) as answer:
        os.environ[WORKER] = json.load(answer)["TaskARN"].rpartition("/")[2]
    for name in ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN"):
        os.environ.pop(name, None)
    os.execv(sys.executable, [sys.executable, "-m", "penstock", *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    main()
