"""CONTRIBUTING names files that exist, and a search of the code for an ordinary word finds the right one."""

import re
import subprocess

import pytest

from tools.shape import ROOT

PACKAGE = ROOT / "src" / "penstock"
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PATH = re.compile(r"`([\w.*-]+/[\w.*/-]*|\w+\.py)`")
FIRST = {
    "leader election": "engine/leader.py",
    "group commit": "store/batcher.py",
    "pub/sub wake-up": "engine/signals.py",
    "retry budget": "engine/worker_api.py",
    "job timeout": "worker/agent/attempts.py",
    "exit code": "cli/exit_codes.py",
    "penstock fleets list": "cli/fleets.py",
    "tick planning": "scheduler/tick_plan.py",
    "HTTP client of a worker": "worker/http_api.py",
}
"""An ordinary word, and the file that `git grep -il WORD src/penstock` must list first."""
FOUND = {
    "group commit": "store/sqlite/writer.py",
    "backoff": "backoff.py",
    "heartbeat": "worker/agent/heartbeat.py",
    "breaker": "orchestrator/shard.py",
    "idempotency key": "model/submission.py",
    "pool": "store/postgres/pool.py",
    "prefork": "worker/prefork/server.py",
    "subscriber": "broker/redis/subscriber.py",
    "batch": "store/batcher.py",
}
"""An ordinary word, and one of the files that this search must list."""


def section(heading: str) -> str:
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def named(heading: str) -> list[str]:
    return sorted(set(PATH.findall(section(heading))))


@pytest.mark.parametrize("path", [*named("Where to look"), *named("To add …")])
def test_a_file_that_contributing_names_exists(path: str) -> None:
    assert list(PACKAGE.glob(path.rstrip("/"))) or list(ROOT.glob(path.rstrip("/")))


def test_the_map_from_words_to_files_is_sorted() -> None:
    words = re.findall(r"^\| (?!word|---)(.+?) \|", section("Where to look"), re.MULTILINE)
    assert len(words) > 40
    assert words == sorted(words, key=str.lower)


@pytest.mark.parametrize("word", FIRST)
def test_a_search_for_a_word_lists_its_file_first(word: str) -> None:
    assert searched(word)[:1] == [FIRST[word]]


@pytest.mark.parametrize("word", FOUND)
def test_a_search_for_a_word_lists_its_file(word: str) -> None:
    assert FOUND[word] in searched(word)


def searched(word: str) -> list[str]:
    """The files of the package with this word, as `git grep -il` lists them."""
    command = ["git", "grep", "-il", "--no-index", word, "--", "*.py"]
    done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, timeout=30)
    return done.stdout.splitlines()
