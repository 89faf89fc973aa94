"""A task's first program here: takes the credentials of its role from a file, and becomes the worker.

On AWS the agent of ECS gives them out. The emulator's are of no role that it knows.
"""

import json
import os
import sys
from pathlib import Path

CREDENTIALS = "CLUSTER_CREDENTIALS"


def main() -> None:
    os.environ.update(json.loads(Path(os.environ[CREDENTIALS]).read_text()))
    for name in ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN"):
        os.environ.pop(name, None)
    os.execv(sys.executable, [sys.executable, "-m", "penstock", *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    main()
