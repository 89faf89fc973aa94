"""`python -m cluster.aws`: deploy the shipped template to an emulated AWS, load it, hurt it, and judge it."""

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from cluster.__main__ import BROKEN, INTERRUPTED, UNUSABLE, interrupt, say
from cluster.aws.cloud import NotDeployed, running
from cluster.aws.run import AwsPlan, run
from servers import Missing


def main() -> int:
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, interrupt)
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="penstock-aws-")).resolve()
    status = BROKEN
    try:
        status = _run_or_explain(folder, arguments.code, AwsPlan(jobs=arguments.jobs))
    finally:
        if arguments.folder is not None or status == BROKEN:
            say(f"logs, histories and ledger are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return status


def _run_or_explain(folder: Path, code: Path, plan: AwsPlan) -> int:
    try:
        return _run(folder, code, plan)
    except (Missing, NotDeployed) as missing:
        say(str(missing))
        return UNUSABLE
    except KeyboardInterrupt:
        say("interrupted; everything was stopped")
        return INTERRUPTED


def _run(folder: Path, code: Path, plan: AwsPlan) -> int:
    say("starting podman and ministack, and deploying deploy/aws/template.json")
    with running(folder, code) as cloud:
        say(f"deployed: {cloud.outputs['ApiUrl']}; files in {folder}")
        kept = run(cloud, plan, say)
    say("every promise was kept" if kept else "NOT every promise was kept")
    return 0 if kept else BROKEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster.aws", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200, help="jobs of the load, at least (default 200)")
    parser.add_argument("--code", type=Path, required=True, help="the zip of the functions, of `make lambda`")
    parser.add_argument("--folder", help="keep logs, histories and ledger in this new folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
