"""The code keeps its shape: names are unique and ordinary, files are short nouns, imports have no cycle.

`make shape ARGS="--list FIGURE"` shows the places behind a figure.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from tools import shape
from tools.shape import ROOT, Figure, Module, read_modules

Measure = Callable[[Sequence[Module]], Figure]

PACKAGE = ROOT / "src" / "penstock"
DOUBLE_NAMES: frozenset[str] = frozenset()
"""Class names that may be defined more than once; at most five, each with its reason."""
LIMITS: dict[Measure, int] = {
    shape.participles: 0,
    shape.gerunds: 8,
    shape.holders: 0,
    shape.cycles: 0,
    shape.long_files: 0,
    shape.polling_tests: 0,
}
"""How many places each figure may have. These numbers only shrink."""
PICTURES = {"README.md": "How it is built", "docs/design/overview.md": "How Penstock is built"}
"""The pages that draw the architecture, and the headings above the drawings."""


@cache
def modules() -> list[Module]:
    return read_modules(ROOT / "src")


def test_a_class_name_means_one_thing_in_the_whole_package() -> None:
    repeated = {place.partition(" ")[0]: place for place in shape.repeated_classes(modules()).places}
    assert [place for name, place in repeated.items() if name not in DOUBLE_NAMES] == []
    assert len(DOUBLE_NAMES) <= 5


@pytest.mark.parametrize("measure", LIMITS, ids=lambda measure: measure.__name__)
def test_a_figure_stays_within_its_limit(measure: Measure) -> None:
    found = measure(modules()).places
    assert len(found) <= LIMITS[measure], "\n".join(found)


@pytest.mark.parametrize("page", PICTURES)
def test_the_picture_of_the_architecture_names_every_folder_and_no_other(page: str) -> None:
    section = (ROOT / page).read_text("utf-8").partition(f"# {PICTURES[page]}\n")[2]
    drawing = section.split("```")[1]
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"\b([a-z]+)/", drawing)) == folders


def test_the_overview_names_every_file_beside_the_folders() -> None:
    page = (ROOT / "docs/design/overview.md").read_text("utf-8")
    assert [path.name for path in PACKAGE.glob("[a-z]*.py") if f"`{path.name}`" not in page] == []


@pytest.mark.parametrize(
    ("name", "participle"),
    [
        ("_made", True),
        ("running", True),
        ("_all_applied", True),
        ("open_connection", False),
        ("_mark_started", False),
        ("feed", False),
        ("_nothing", False),
    ],
)
def test_a_participle_is_told_from_a_verb(name: str, participle: bool) -> None:
    assert shape.is_participle(name) is participle


def test_a_cycle_is_found_however_long() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}
    assert sorted(map(sorted, shape.strong_components(graph))) == [["a", "b", "c"], ["d"]]
