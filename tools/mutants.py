"""Breaks the code on purpose, one way after another, and says whether the test that guards it notices.

    python tools/mutants.py              every mutant of mutants.toml
    python tools/mutants.py fence tick   those whose names contain one of these words

Works in a copy of the tree, so that the tree itself stays as it is. Ends with status 1 if a mutant is missed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, convert

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tools" / "mutants.toml"
EMULATORS = ROOT / ".emulators"
"""What `make emulators` has installed: without it, tests on AWS are skipped and notice nothing."""

TEST_SECONDS = 300
PASSED, FAILED = 0, 1
"""What pytest exits with; anything else means that it could not run the test."""


class Mutant(Struct, frozen=True):
    """A guard taken out: in `file`, the first text of each pair is replaced by the second, wherever it stands."""

    name: str
    file: str
    replace: tuple[tuple[str, str], ...]
    test: str

    def mutated(self, text: str) -> str:
        """The file's text without the guard; ValueError if the guard is not there."""
        for old, new in self.replace:
            if old not in text:
                raise ValueError(f"{self.name}: {self.file} does not contain {old!r}")
            text = text.replace(old, new)
        return text


class Verdict(StrEnum):
    CAUGHT = "caught"
    MISSED = "MISSED"
    BROKEN = "BROKEN"


def mutants() -> list[Mutant]:
    """All of the list."""
    return convert(tomllib.loads(LIST.read_text("utf-8"))["mutant"], list[Mutant])


def main(words: Sequence[str]) -> int:
    chosen = [one for one in mutants() if not words or any(word in one.name for word in words)]
    if not chosen:
        print("no mutant has such a name")
        return 1
    with copied_tree() as tree:
        if run_tests(tree, sorted({one.test for one in chosen})) != PASSED:
            print("the tests do not even pass on the code as it is")
            return 1
        verdicts = [judge(tree, one) for one in chosen]
    caught = verdicts.count(Verdict.CAUGHT)
    print(f"{caught} of {len(chosen)} caught")
    return 0 if caught == len(chosen) else 1


@contextmanager
def copied_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "node_modules"))
        # Large, and only read: tests find the emulators of AWS beside the sources.
        if EMULATORS.exists():
            (tree / EMULATORS.name).symlink_to(EMULATORS)
        yield tree


def judge(tree: Path, mutant: Mutant) -> Verdict:
    """Mutate, run the test, put it back."""
    path = tree / mutant.file
    whole = path.read_text("utf-8")
    path.write_text(mutant.mutated(whole), "utf-8")
    try:
        status = run_tests(tree, [mutant.test], quiet=True)
    finally:
        path.write_text(whole, "utf-8")
    verdict = {PASSED: Verdict.MISSED, FAILED: Verdict.CAUGHT}.get(status, Verdict.BROKEN)
    print(f"{verdict:6}  {mutant.name}", flush=True)
    return verdict


def run_tests(tree: Path, tests: Sequence[str], *, quiet: bool = False) -> int:
    """pytest's exit status. A test that never ends has noticed too."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    # No bytecode: a mutated file may have the age and the size of the one before it.
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    output = subprocess.DEVNULL if quiet else None
    try:
        return subprocess.run(
            command, cwd=tree, env=environment, stdout=output, stderr=output, timeout=TEST_SECONDS * len(tests)
        ).returncode
    except subprocess.TimeoutExpired:
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
