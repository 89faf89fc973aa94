"""What a fork of a template does not have in common with it."""

import sys
from types import SimpleNamespace

import pytest

from penstock.worker.prefork.server import reseed


def test_numpy_gets_a_new_seed_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setitem(sys.modules, "numpy.random", SimpleNamespace(seed=lambda: calls.append("seed")))
    reseed()
    assert calls == ["seed"]


def test_numpy_is_not_loaded_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy.random", raising=False)
    reseed()
    assert "numpy.random" not in sys.modules
