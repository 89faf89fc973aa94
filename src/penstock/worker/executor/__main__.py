"""`python -m penstock.worker.executor`: an executor that is not forked, and imports the app itself."""

import sys

from penstock.worker.executor import log_capture
from penstock.worker.executor.main import execute, tie_to


def main() -> None:
    end, flags, places, agent = map(int, sys.argv[1:5])
    tie_to(agent)
    log_capture.install()
    execute(end, flags, places)


if __name__ == "__main__":
    main()
