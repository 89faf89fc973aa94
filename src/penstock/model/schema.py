"""Params checked against a JSON Schema: the server's side, which knows a handler only by what it declared.

The keywords that signatures are written with are compiled back into types, so that a wrong call is refused at native
speed. Unknown keywords are ignored: the worker, which has the signature itself, checks again. A schema is untrusted:
nothing of it is evaluated here that could take long, such as a pattern.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, ForwardRef, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct

from penstock.model.params import as_object, decode, decode_rest, union

MOST_NODES = 2000
"""A schema of more types than this, with references followed, is not compiled: it would keep the server busy."""


def checker(schema: Mapping[str, Any]) -> Callable[[bytes], None]:
    """A function that raises InvalidParams for params that a handler with this schema would refuse.

    It never refuses what the handler accepts. What it cannot tell from the schema (keywords it does not know, patterns,
    keys that are numbers, whether an instant needs its offset) it lets pass: the worker decodes again.
    """
    shape = _compiled(schema)

    def check(raw: bytes) -> None:
        body = as_object(raw)
        decode(shape.decoder, body)
        if shape.rest is not None:
            decode_rest(shape.rest, body, shape.known)

    return check


class Node(Struct, frozen=True, rename="camel", kw_only=True):
    """A JSON Schema, as far as msgspec writes it: what other keywords demand is left to the worker."""

    type: str | list[str] | None = None
    format: str | None = None
    content_encoding: str | None = None
    enum: list[Any] | None = None
    const: Any = UNSET
    ref: str | None = msgspec.field(default=None, name="$ref")
    defs: dict[str, "Node"] = msgspec.field(default_factory=dict, name="$defs")
    any_of: list["Node"] | None = None
    properties: dict[str, "Node"] | None = None
    required: list[str] = []
    additional_properties: "Node | bool" = True
    pattern_properties: Any = None
    property_names: "Node | None" = None
    items: "Node | bool" = True
    prefix_items: list["Node"] | None = None
    unique_items: bool = False
    minimum: int | float | None = None
    exclusive_minimum: int | float | None = None
    maximum: int | float | None = None
    exclusive_maximum: int | float | None = None
    multiple_of: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None


class _Shape(Struct, frozen=True):
    decoder: msgspec.json.Decoder[Any]
    rest: msgspec.json.Decoder[Any] | None = None
    known: tuple[str, ...] = ()


def _compiled(schema: Mapping[str, Any]) -> _Shape:
    try:
        root = msgspec.convert(schema, Node)
        types = _SchemaTypes(root.defs)
        rest = root.additional_properties if root.properties is not None else True
        return _Shape(
            msgspec.json.Decoder(types.of(root)),
            msgspec.json.Decoder(types.of(rest)) if isinstance(rest, Node) else None,
            tuple(root.properties or ()),
        )
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, RecursionError):
        return _Shape(msgspec.json.Decoder(dict[str, Any]))


class _SchemaTypes:
    """Turns nodes back into types that msgspec decodes natively."""

    def __init__(self, defs: Mapping[str, Node]) -> None:
        self._defs = list(defs.values())
        self._index = {f"#/$defs/{name}": index for index, name in enumerate(defs)}
        self._types: list[Any] = [UNSET] * len(defs)
        self._sizes = [0] * len(defs)
        self._cycles = [0] * len(defs)
        self._spent = 0

    def of(self, node: Node) -> Any:
        self._spend(1)
        if node.ref is not None:
            return self._referred(node.ref)
        if node.any_of is not None:
            return union(map(self.of, node.any_of))
        if node.enum is not None or node.const is not UNSET:
            values = node.enum if node.enum is not None else [node.const]
            self._spend(len(values))
            return _literal(values)
        match node.type:
            case "array":
                return self._array(node)
            case "object":
                return self._object(node)
            case str(name) if name in _SCALARS:
                return _SCALARS[name](node)
        return Any

    def _referred(self, ref: str) -> Any:
        index = self._index.get(ref)
        if index is None:
            return Any
        if self._types[index] is UNSET:
            self._define(index)
        elif isinstance(self._types[index], ForwardRef):
            self._cycles[index] += 1
        else:
            self._spend(self._sizes[index])
        return self._types[index]

    def _define(self, index: int) -> None:
        # A class that refers to itself finds this while it is being made; by number, as names are not ours to eval.
        self._types[index] = ForwardRef(f"defs[{index}]")
        before = self._spent
        self._types[index] = made = self._named(self._defs[index])
        # Each reference compiles it once more; a class is compiled once.
        is_class = isinstance(made, type) and issubclass(made, Struct)
        self._sizes[index] = 0 if is_class else self._spent - before
        self._spend(self._cycles[index] * self._sizes[index])

    def _spend(self, nodes: int) -> None:
        self._spent += nodes
        if self._spent > MOST_NODES:
            raise ValueError(f"a schema of more than {MOST_NODES} types")

    def _named(self, node: Node) -> Any:
        """A class under `$defs`. The first required property is its tag if it can have one value only."""
        first = node.properties[node.required[0]] if node.properties and node.required else Node()
        if node.type != "object" or first.enum is None or len(first.enum) != 1:
            return self.of(node)
        others = {name: one for name, one in (node.properties or {}).items() if name != node.required[0]}
        return self._struct(others, node, tag_field=node.required[0], tag=first.enum[0])

    def _object(self, node: Node) -> Any:
        if node.pattern_properties is not None:
            return dict[str, Any]
        if node.properties is not None:
            return self._struct(node.properties, node)
        keys = _text(node.property_names) if node.property_names else str
        values = self.of(node.additional_properties) if isinstance(node.additional_properties, Node) else Any
        return _limited(dict[keys, values], min_length=node.min_properties, max_length=node.max_properties)  # type: ignore[valid-type]

    def _struct(self, properties: Mapping[str, Node], node: Node, **options: Any) -> Any:
        required = frozenset(node.required)
        fields = [
            (f"f{number}", self.of(one)) if name in required else (f"f{number}", self.of(one), UNSET)
            for number, (name, one) in enumerate(properties.items())
        ]
        names = {f"f{number}": name for number, name in enumerate(properties)}
        closed = node.additional_properties is False
        return self._class(fields, rename=names, kw_only=True, forbid_unknown_fields=closed, **options)

    def _array(self, node: Node) -> Any:
        if node.prefix_items:
            return self._row([self.of(one) for one in node.prefix_items], node)
        item = self.of(node.items) if isinstance(node.items, Node) else Any
        # Of a set the length is told after equal items became one: only the lower limit holds for all of them.
        most = None if node.unique_items else node.max_items
        return _limited(tuple[item, ...], min_length=node.min_items, max_length=most)  # type: ignore[valid-type]

    def _row(self, items: list[Any], node: Node) -> Any:
        least = node.min_items or 0
        if least == node.max_items == len(items):
            return tuple[tuple(items)]  # type: ignore[misc]
        fields = [(f"f{n}", item) if n < least else (f"f{n}", item, UNSET) for n, item in enumerate(items)]
        return self._class(fields, array_like=True, forbid_unknown_fields=node.max_items == len(items))

    def _class(self, fields: Iterable[Any], **options: Any) -> type[Struct]:
        return msgspec.defstruct("Params", fields, namespace={"defs": self._types}, **options)


def _literal(values: list[Any]) -> Any:
    plain = all(value is None or type(value) in (str, int) for value in values)
    return Literal[tuple(values)] if plain else Any


def _limited(kind: Any, **limits: Any) -> Any:
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return Annotated[kind, Meta(**given)] if given else kind


def _number(kind: type) -> Callable[[Node], Any]:
    return lambda node: _limited(
        kind,
        ge=node.minimum,
        gt=node.exclusive_minimum,
        le=node.maximum,
        lt=node.exclusive_maximum,
        multiple_of=node.multiple_of,
    )


_TEXTS = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "partial-time": time,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}


def _text(node: Node) -> Any:
    if node.content_encoding == "base64":
        # Told in characters of base64, of which four stand for one to three bytes.
        least = None if node.min_length is None else max(0, node.min_length // 4 * 3 - 2)
        return _limited(bytes, min_length=least, max_length=node.max_length and node.max_length // 4 * 3)
    if node.format in _TEXTS:
        return _TEXTS[node.format]
    return _limited(str, min_length=node.min_length, max_length=node.max_length)


_SCALARS: dict[str, Callable[[Node], Any]] = {
    "null": lambda node: None,
    "boolean": lambda node: bool,
    "integer": _number(int),
    "number": _number(float),
    "string": _text,
}
