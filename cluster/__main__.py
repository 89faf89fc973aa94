"""`python -m cluster`: bring a whole Penstock up, load it, hurt it, and say whether its promises were kept."""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from cluster.cluster import WHOLE, running
from cluster.run import Plan, run
from servers import Missing

BROKEN = 1
UNUSABLE = 2
INTERRUPTED = 130


def main() -> int:
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    plan = Plan(jobs=arguments.jobs, clients=arguments.clients, rate=arguments.rate, bars=not arguments.no_bars)
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="penstock-cluster-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    status = BROKEN
    try:
        status = _run_or_explain(folder, plan)
    finally:
        if arguments.folder is not None or status == BROKEN:
            say(f"logs, histories and ledger are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return status


def _run_or_explain(folder: Path, plan: Plan) -> int:
    try:
        return _run(folder, plan)
    except Missing as missing:
        say(str(missing))
        return UNUSABLE
    except KeyboardInterrupt:
        say("interrupted; everything was stopped")
        return INTERRUPTED


def _run(folder: Path, plan: Plan) -> int:
    say("starting: 3 PostgreSQL, a standby, a spare, Valkey, SeaweedFS, 3 APIs, nginx, 2 schedulers, 4 workers, a sink")
    with running(folder, WHOLE) as cluster:
        say(f"ready at http://127.0.0.1:{cluster.port}; files in {folder}")
        kept = run(cluster, plan, say)
    say("every promise was kept" if kept else "NOT every promise was kept")
    return 0 if kept else BROKEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000, help="jobs of the load, at least (default 50,000)")
    parser.add_argument("--clients", type=int, default=16, help="clients at once (default 16)")
    parser.add_argument("--rate", type=float, default=5_000, help="most jobs asked for in a second")
    parser.add_argument("--no-bars", action="store_true", help="measure recoveries and do not judge them")
    parser.add_argument("--folder", help="keep logs, histories and ledger in this new folder")
    return parser


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """End as Ctrl-C does."""
    raise KeyboardInterrupt


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
