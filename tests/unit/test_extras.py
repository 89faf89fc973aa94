"""Extras are those of pyproject.toml, and the missing ones are told together."""

import tomllib
from pathlib import Path

import pytest

from penstock.model import extras
from penstock.model.errors import MissingExtra
from penstock.model.extras import DISTRIBUTION, LIBRARIES, require

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]


def test_each_extra_brings_its_library() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    declared = PROJECT["optional-dependencies"]
    assert set(LIBRARIES) == set(declared) - {"fast", "testing"}
    for extra, library in LIBRARIES.items():
        assert any(one.startswith(library) for one in declared[extra])


def test_what_is_installed_is_not_missing() -> None:
    require()
    require(*LIBRARIES)


def test_all_that_is_missing_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "LIBRARIES", {**LIBRARIES, "redis": "no_such_library", "s3": "nor_this_one"})
    with pytest.raises(MissingExtra) as missing:
        require("postgres", "redis", "s3")
    assert missing.value.remedy == "pip install 'penstock-jobs[redis,s3]'"
    assert missing.value.message == (
        "no_such_library and nor_this_one are not installed: pip install 'penstock-jobs[redis,s3]'"
    )
