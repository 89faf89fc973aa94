"""SQL statements share their column lists."""

import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from penstock.store.statements import load_statement

STORES = ("penstock.store.sqlite", "penstock.store.postgres")
INCLUDE = re.compile(r"-- include (\w+)")


def statements(store: str) -> list[Path]:
    return sorted(Path(str(files(store) / "sql")).glob("*.sql"))


@pytest.mark.parametrize("store", STORES)
def test_every_include_is_replaced_by_its_column_list(store: str) -> None:
    for path in statements(store):
        text = load_statement(store, path.stem)
        assert INCLUDE.search(text) is None, path
        for name in INCLUDE.findall(path.read_text("utf-8")):
            assert load_statement(store, f"columns/{name}") in text, path


def test_a_comma_follows_a_column_list_that_is_not_the_last() -> None:
    text = load_statement("penstock.store.sqlite", "claim")

    assert re.search(
        r"RETURNING\nid, type, .*, version,\n *max\(0, started_at - due_at\),\nparams, .*, priority$", text
    )


@pytest.mark.parametrize("store", STORES)
def test_every_column_list_stands_in_several_statements(store: str) -> None:
    used = Counter(name for path in statements(store) for name in set(INCLUDE.findall(path.read_text("utf-8"))))

    lists = {path.stem for path in Path(str(files(store) / "sql" / "columns")).glob("*.sql")}
    assert {name: uses for name, uses in used.items() if uses > 1}.keys() == lists
