"""The walks of the overview name functions that are really entered, in that order."""

import re
from pathlib import Path

import pytest

from penstock.config import Settings, load
from tests.postgres import server
from tools.shape import ROOT
from tools.trace import STEPS, Hop, trace

PAGE = (ROOT / "docs" / "design" / "overview.md").read_text("utf-8")
HOP = re.compile(r"^\| `([\w/]+\.py): ([\w.]+)` \|", re.MULTILINE)


def walk(title: str) -> str:
    return PAGE.partition(f"## Walk: {title}\n")[2].partition("\n## ")[0]


def named(text: str) -> list[Hop]:
    return [Hop(file, function) for file, function in HOP.findall(text)]


def settings(folder: Path, **more: object) -> Settings:
    flags = {"server.data": str(folder), "server.allow_unknown_types": True}
    return load(None, {}, {**flags, **{name.replace("_", ".", 1): value for name, value in more.items()}})


def first_missing(told: list[Hop], entered: list[Hop]) -> Hop | None:
    """The first that is not entered after those before it."""
    left = iter(entered)
    return next((hop for hop in told if hop not in left), None)


async def test_the_walk_over_sqlite_is_the_way_of_a_job(tmp_path: Path) -> None:
    parts = re.split(r"^\*(?:Submit|Claim|Settle|Read)\*", walk("one job over HTTP, on SQLite"), flags=re.MULTILINE)[1:]
    entered = await trace(settings(tmp_path), STEPS)
    for step, part in zip(STEPS, parts, strict=True):
        assert len(named(part)) >= 4
        assert first_missing(named(part), entered[step]) is None


@pytest.mark.slow
async def test_the_walk_through_the_orchestrator_is_the_way_of_a_submit(tmp_path: Path) -> None:
    told = named(walk("one submit through the orchestrator to PostgreSQL"))
    entered = await trace(settings(tmp_path, store_url=server(18).database("walk")), ["submit"])
    assert len(told) >= 8
    assert first_missing(told, entered["submit"]) is None


def test_a_function_that_is_not_entered_is_told() -> None:
    a, b = Hop("a.py", "a"), Hop("b.py", "b")
    assert first_missing([a, b], [a, b]) is None
    assert first_missing([b, a], [a, b]) == a
