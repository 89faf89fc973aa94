"""`python -m penstock.cli.prefork`: not a command, but the process that local fleets fork `penstock worker` from."""

import sys

from penstock.cli import main
from penstock.worker.prefork.server import serve_prefork


def work(app: str) -> None:
    """Do what `penstock worker` does, and exit as it does."""
    main(["worker", app])


if __name__ == "__main__":
    serve_prefork(sys.argv[3], int(sys.argv[1]), int(sys.argv[2]), work)
