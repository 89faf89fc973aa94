"""Conditions, and the parts of a transaction, with names and values bound."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.store.dynamodb.values import Item, ItemKey, encode, encode_item, encode_key

_NAMES = re.compile(r"#(\w+)")


class ItemCondition:
    """A condition on an item as it is before the write. `#ttl` stands for an attribute, `:now` for a value.

    Only names that are reserved words of DynamoDB (`ttl`, for example) need the `#`.
    """

    __slots__ = ("text", "values")

    def __init__(self, text: str, **values: Any) -> None:
        self.text = text
        self.values = values

    def arguments(self) -> dict[str, Any]:
        return {"ConditionExpression": self.text, **bind(self.text, self.values)}


ABSENT = ItemCondition("attribute_not_exists(pk)")
PRESENT = ItemCondition("attribute_exists(pk)")


class Update(Struct, frozen=True):
    """What a write changes in one item: `SET`, `REMOVE` and `ADD` of attributes. A None in `sets` is removed."""

    key: ItemKey
    sets: Mapping[str, Any] = {}
    removes: tuple[str, ...] = ()
    adds: Mapping[str, int] = {}
    condition: ItemCondition | None = None

    def arguments(self) -> dict[str, Any]:
        """Of UpdateItem and of the part of a transaction, without the table."""
        kept = {name: value for name, value in self.sets.items() if value is not None}
        removed = [*self.removes, *(name for name in self.sets if self.sets[name] is None)]
        clauses = [
            _clause("SET", [f"#{name} = :set_{name}" for name in kept]),
            _clause("REMOVE", [f"#{name}" for name in removed]),
            _clause("ADD", [f"#{name} :add_{name}" for name in self.adds]),
        ]
        text = " ".join(filter(None, clauses))
        values = {f"set_{name}": value for name, value in kept.items()}
        values |= {f"add_{name}": value for name, value in self.adds.items()}
        arguments: dict[str, Any] = {"Key": encode_key(self.key), "UpdateExpression": text}
        if self.condition is not None:
            arguments["ConditionExpression"] = self.condition.text
            values |= self.condition.values
            text = f"{text} {self.condition.text}"
        return arguments | bind(text, values)


def _clause(verb: str, parts: list[str]) -> str:
    return f"{verb} {', '.join(parts)}" if parts else ""


def bind(text: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The names and values that a text of expressions uses."""
    names = {f"#{name}": name for name in _NAMES.findall(text)}
    bound: dict[str, Any] = {"ExpressionAttributeNames": names} if names else {}
    if values:
        bound["ExpressionAttributeValues"] = {f":{name}": encode(value) for name, value in values.items()}
    return bound


class Part(Struct, frozen=True):
    """One write or check of a transaction; `action` is Put, Update, Delete or ConditionCheck."""

    action: str
    arguments: dict[str, Any]


def put_part(item: Item, condition: ItemCondition | None = None) -> Part:
    return Part("Put", {"Item": encode_item(item)} | _guard(condition))


def update_part(update: Update) -> Part:
    return Part("Update", update.arguments())


def delete_part(key: ItemKey, condition: ItemCondition | None = None) -> Part:
    return Part("Delete", {"Key": encode_key(key)} | _guard(condition))


def check_part(key: ItemKey, condition: ItemCondition) -> Part:
    return Part("ConditionCheck", {"Key": encode_key(key)} | _guard(condition))


def _guard(condition: ItemCondition | None) -> dict[str, Any]:
    return {} if condition is None else condition.arguments()
