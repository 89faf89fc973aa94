"""Every mutant of the list still applies to the code, and the test that must notice it is there."""

from functools import cache

import pytest

from tools.mutants import ROOT, Mutant, mutants

LISTED = mutants()


@pytest.mark.parametrize("mutant", LISTED, ids=lambda mutant: mutant.name)
def test_a_mutant_applies(mutant: Mutant) -> None:
    """If not: write its text in tools/mutants.toml anew, and try it with `make mutants ARGS="..."`."""
    text = (ROOT / mutant.file).read_text("utf-8")
    assert mutant.mutated(text) != text


@pytest.mark.parametrize("test", sorted({one.test for one in LISTED}))
def test_the_test_of_a_mutant_exists(test: str) -> None:
    """Perhaps in a contract suite, from which the class inherits it."""
    file, *_, name = test.split("::")
    assert (ROOT / file).is_file()
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text("utf-8") + contracts()


def test_names_are_unique() -> None:
    names = [one.name for one in LISTED]
    assert sorted(names) == sorted(set(names))


@cache
def contracts() -> str:
    return "".join(path.read_text("utf-8") for path in (ROOT / "src/penstock/testing").rglob("*.py"))
