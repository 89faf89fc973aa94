"""Conditional writes as PartiQL, so that one call carries many of them and each is refused by itself."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from penstock.store.dynamodb.values import Item, ItemKey, encode


class Insert(Struct, frozen=True):
    """Put an item whose key is free; refused if there is one."""

    item: Item


class Swap(Struct, frozen=True):
    """Change an item whose attributes `seen` still have these values. A None in `sets` removes the attribute."""

    key: ItemKey
    sets: Mapping[str, Any]
    seen: Mapping[str, Any]


Write: TypeAlias = Insert | Swap


class Dialect(Struct, frozen=True):
    """How a list of changes is written. AWS documents a keyword before each; the emulators take only commas."""

    repeats: bool

    def statement(self, table: str, write: Write) -> dict[str, Any]:
        """An entry of BatchExecuteStatement."""
        return _insert(table, write.item) if isinstance(write, Insert) else self._update(table, write)

    def _update(self, table: str, swap: Swap) -> dict[str, Any]:
        kept = {name: value for name, value in swap.sets.items() if value is not None}
        removed = [f'"{name}"' for name, value in swap.sets.items() if value is None]
        where = {"pk": swap.key.pk, "sk": swap.key.sk, **swap.seen}
        sets, guards = _places(kept), " AND ".join(_places(where))
        text = f'UPDATE "{table}" {self._list("SET", sets)}{self._list("REMOVE", removed)}WHERE {guards}'
        return {"Statement": text, "Parameters": [encode(value) for value in (*kept.values(), *where.values())]}

    def _list(self, keyword: str, parts: list[str]) -> str:
        if not parts:
            return ""
        return f"{keyword} {f' {keyword} '.join(parts) if self.repeats else ', '.join(parts)} "


DIALECTS = (Dialect(repeats=False), Dialect(repeats=True))
"""Which one a service takes is tried before the first batch."""

PROBE = Swap(ItemKey("penstock", "dialect"), {"a": 1, "b": 1, "c": None, "d": None}, {"x": "never"})
"""A change of an item that is never there."""


def _places(values: Mapping[str, Any]) -> list[str]:
    """A placeholder for each value. All names are quoted: some are reserved words."""
    return [f'"{name}"=?' for name in values]


def _insert(table: str, item: Item) -> dict[str, Any]:
    kept = {name: value for name, value in item.items() if value is not None}
    fields = ",".join(f"'{name}':?" for name in kept)
    text = f'INSERT INTO "{table}" VALUE {{{fields}}}'
    return {"Statement": text, "Parameters": [encode(value) for value in kept.values()]}
