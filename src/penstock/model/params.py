"""The shape of a handler's params: taken from its signature, told as JSON Schema, checked on both sides of the wire.

On the wire params are a JSON object of named arguments; `null` stands for none at all. A worker has the function and
decodes with `Signature`; a server has only the schema and refuses a wrong call with `checker`, before there is a job.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import UnionType
from typing import Annotated, Any, ForwardRef, Literal, Self, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct

from penstock.model.errors import Invalid, InvalidParams

NO_PARAMS = b"{}"
_STRAY = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class Signature:
    """What a handler takes: decodes and encodes its params, and describes them."""

    def __init__(self, name: str, parameters: Sequence[inspect.Parameter], context: str | None) -> None:
        named = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
        self.name = name
        self._context = context
        self._bind = inspect.Signature(parameters).bind
        self._defaults = {one.name: one.default for one in named if one.default is not one.empty}
        self._rest = next((one for one in parameters if one.kind is one.VAR_KEYWORD), None)
        self._struct = _struct(name, named, closed=self._rest is None)
        self._schema = self._describe()
        self._decoder = msgspec.json.Decoder(self._struct)
        self._rest_decoder = msgspec.json.Decoder(self._rest.annotation if self._rest else Any)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """The signature of a handler, without a leading parameter annotated as Context.

        Invalid when it cannot be called with named arguments alone, or a type has no form in JSON.
        """
        name = getattr(function, "__name__", repr(function))
        parameters = _resolved(function, name)
        context = parameters.pop(0).name if parameters and _is_context(parameters[0]) else None
        for parameter in parameters:
            _require_named(name, parameter)
            _require_form(name, parameter)
        return cls(name, parameters, context)

    @property
    def takes_context(self) -> bool:
        return self._context is not None

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the params object; classes and enums it refers to lie under `$defs`."""
        return self._schema

    def decode(self, raw: bytes) -> dict[str, object]:
        """Keyword arguments for the function: those that were given; the function itself adds its defaults."""
        body = _object(raw)
        given = msgspec.structs.asdict(_decode(self._decoder, body))
        if self._defaults:
            given = {name: value for name, value in given.items() if value is not UNSET}
        if self._rest is not None:
            given |= _decode_rest(self._rest_decoder, body, self._struct.__struct_encode_fields__)
        if self._context in given:
            raise InvalidParams(f"params do not fit: `{self._context}` is the handler's context, not a param")
        return given

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """The params of a call, as the function would take it; InvalidParams if it would not, or not from JSON."""
        try:
            arguments = dict(self._bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise InvalidParams(f"{self.name}() cannot be called like this: {error}") from None
        if self._rest is not None:
            arguments |= arguments.pop(self._rest.name, {})
        raw = b"{" + b",".join(_member(name, value) for name, value in arguments.items()) + b"}"
        self.decode(raw)
        return raw

    def _describe(self) -> dict[str, Any]:
        rest = self._rest.annotation if self._rest else Any
        (link, more), components = msgspec.json.schema_components((self._struct, rest))
        schema: dict[str, Any] = components.pop(link["$ref"].rpartition("/")[2])
        for name, default in self._defaults.items():
            schema["properties"][name] |= _told(default)
        if more:
            schema["additionalProperties"] = more
        return schema | ({"$defs": components} if components else {})


def checker(schema: Mapping[str, Any]) -> Callable[[bytes], None]:
    """A function that raises InvalidParams for params that a handler with this schema would refuse.

    It never refuses what the handler accepts. What it cannot tell from the schema (keywords it does not know, keys that
    are numbers, whether an instant needs its offset) it lets pass: the worker decodes again.
    """
    shape = _compiled(schema)

    def check(raw: bytes) -> None:
        body = _object(raw)
        _decode(shape.decoder, body)
        if shape.rest is not None:
            _decode_rest(shape.rest, body, shape.known)

    return check


# -- from a function


def _resolved(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """The function's parameters with their annotations evaluated; Any where there is none."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise Invalid(f"handler {name!r}: its signature cannot be read: {error}") from None
    return [one.replace(annotation=_with_format(hints.get(one.name, Any))) for one in parameters]


def _is_context(parameter: inspect.Parameter) -> bool:
    return getattr(parameter.annotation, "__penstock_context__", False) is True


def _require_named(name: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in _STRAY:
        raise Invalid(f"handler {name!r}: {parameter} cannot be given by name; params are named arguments")
    if _is_context(parameter):
        raise Invalid(f"handler {name!r}: the Context must be its first parameter, not {parameter.name!r}")


def _require_form(name: str, parameter: inspect.Parameter) -> None:
    try:
        msgspec.json.schema(parameter.annotation)
    except TypeError as error:
        reason = str(error).rpartition("\n")[2]
        raise Invalid(f"handler {name!r}: parameter {parameter.name!r} has no form in JSON: {reason}") from None


def _struct(name: str, parameters: Iterable[inspect.Parameter], *, closed: bool) -> type[Struct]:
    fields = [
        (one.name, one.annotation) if one.default is one.empty else (one.name, one.annotation, UNSET)
        for one in parameters
    ]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=closed)


_FORMATS = {datetime: "date-time", time: "time"}


def _with_format(hint: Any) -> Any:
    """The same type; instants say their format, which msgspec tells only of those that need an offset."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and hint in _FORMATS:
        return Annotated[hint, Meta(extra_json_schema={"format": _FORMATS[hint]})]
    if origin is Annotated:
        return Annotated[(_with_format(args[0]), *args[1:])]
    if origin in (Union, UnionType):
        return _union(map(_with_format, args))
    if origin in (list, dict, tuple, set, frozenset):
        return origin[tuple(arg if arg is ... else _with_format(arg) for arg in args)]
    return hint


def _union(types: Iterable[Any]) -> Any:
    return Union[tuple(types)]  # noqa: UP007 - one forward reference among them has no `|`


def _told(default: object) -> dict[str, Any]:
    """A default as the schema tells it, or nothing when it has no form in JSON."""
    try:
        return {"default": msgspec.to_builtins(default, str_keys=True)}
    except (TypeError, ValueError, RecursionError):
        return {}


# -- to and from JSON


def _object(raw: bytes) -> bytes:
    return NO_PARAMS if raw == b"null" else raw


def _decode(decoder: msgspec.json.Decoder[Any], raw: bytes | Raw, within: str = "") -> Any:
    try:
        return decoder.decode(raw)
    # A TypeError is a set's, whose items cannot be told apart.
    except (msgspec.MsgspecError, TypeError) as error:
        raise InvalidParams(f"params do not fit: {within}{error}") from None
    except RecursionError:
        raise InvalidParams(f"params do not fit: {within}nested too deeply") from None


_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


def _decode_rest(decoder: msgspec.json.Decoder[Any], raw: bytes, known: Iterable[str]) -> dict[str, object]:
    """Arguments beyond the named ones, each decoded by itself."""
    members = _decode(_MEMBERS, raw)
    return {name: _decode(decoder, members[name], f"`{name}`: ") for name in members.keys() - set(known)}


# Not msgspec's encoder: it would write NaN as null.
_write = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _member(name: str, value: object) -> bytes:
    try:
        text = _write(msgspec.to_builtins(value, str_keys=True))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParams(f"argument {name!r} has no form in JSON: {error}") from None
    return f"{_write(name)}:{text}".encode()


# -- from a schema


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
    pattern: str | None = None
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
        types = _Types(root.defs)
        rest = root.additional_properties if root.properties is not None else True
        return _Shape(
            msgspec.json.Decoder(types.of(root)),
            msgspec.json.Decoder(types.of(rest)) if isinstance(rest, Node) else None,
            tuple(root.properties or ()),
        )
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, RecursionError, re.error):
        return _Shape(msgspec.json.Decoder(dict[str, Any]))


class _Types:
    """Turns nodes back into types that msgspec decodes natively."""

    def __init__(self, defs: Mapping[str, Node]) -> None:
        self._defs = list(defs.values())
        self._index = {f"#/$defs/{name}": index for index, name in enumerate(defs)}
        self._types: list[Any] = [UNSET] * len(defs)

    def of(self, node: Node) -> Any:
        if node.ref is not None:
            return self._referred(node.ref)
        if node.any_of is not None:
            return _union(map(self.of, node.any_of))
        if node.enum is not None or node.const is not UNSET:
            return _literal(node.enum if node.enum is not None else [node.const])
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
            # A class that refers to itself finds this while it is being made; by number, as names are not ours to eval.
            self._types[index] = ForwardRef(f"defs[{index}]")
            self._types[index] = self._named(self._defs[index])
        return self._types[index]

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
        fields = [
            (f"f{number}", self.of(one)) if name in node.required else (f"f{number}", self.of(one), UNSET)
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
    return _limited(str, min_length=node.min_length, max_length=node.max_length, pattern=node.pattern)


_SCALARS: dict[str, Callable[[Node], Any]] = {
    "null": lambda node: None,
    "boolean": lambda node: bool,
    "integer": _number(int),
    "number": _number(float),
    "string": _text,
}
