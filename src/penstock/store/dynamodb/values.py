"""Values as DynamoDB writes them, and the size by which it judges and bills an item."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = "str | int | bytes | bool | list[Any] | dict[str, Any]"
Item: TypeAlias = dict[str, Any]
"""An item's attributes by name: text, whole numbers, bytes, lists and maps of them. None stands for no attribute."""

ITEM_BYTES_MAX = 400 * 1024
PARTITION_KEY, SORT_KEY = "pk", "sk"


class ItemKey(NamedTuple):
    """The primary key of an item."""

    pk: str
    sk: str


def key_of(item: Mapping[str, Any]) -> ItemKey:
    return ItemKey(item[PARTITION_KEY], item[SORT_KEY])


def encode_key(key: ItemKey) -> dict[str, Any]:
    return {PARTITION_KEY: {"S": key.pk}, SORT_KEY: {"S": key.sk}}


def encode(value: Any) -> dict[str, Any]:
    """One attribute's value."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, list):
        return {"L": [encode(one) for one in value]}
    if isinstance(value, dict):
        return {"M": encode_item(value)}
    raise TypeError(f"DynamoDB keeps no {type(value).__name__} here")


def encode_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an item; those that are None are left out."""
    return {name: encode(value) for name, value in item.items() if value is not None}


def decode(value: Mapping[str, Any]) -> Any:
    ((kind, content),) = value.items()
    if kind == "N":
        return int(content)
    if kind == "L":
        return [decode(one) for one in content]
    return decode_item(content) if kind == "M" else content


def decode_item(item: Mapping[str, Any]) -> Item:
    return {name: decode(value) for name, value in item.items()}


def size_of(item: Mapping[str, Any]) -> int:
    """About the bytes that DynamoDB counts for an item, never fewer."""
    return sum(len(name.encode()) + _size(value) for name, value in item.items() if value is not None)


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, int):
        return 1 if isinstance(value, bool) else len(str(value)) // 2 + 2
    if isinstance(value, dict):
        return 3 + size_of(value) + len(value)
    return 3 + _sizes(value)


def _sizes(values: Iterable[Any]) -> int:
    return sum(1 + _size(value) for value in values)
