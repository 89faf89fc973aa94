"""The shape of a handler's params: from its signature, as JSON Schema, checked by both server and worker.

On the wire params are a JSON object of named arguments; `null` stands for none at all. A worker has the function and
decodes with `Signature`; a server has only the schema, and refuses a wrong call with `model.schema`.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time
from types import UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin, get_type_hints

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
        self._names = tuple(one.name for one in named)
        self._positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
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
        body = as_object(raw)
        given = msgspec.structs.asdict(decode(self._decoder, body))
        if self._defaults:
            given = {name: value for name, value in given.items() if value is not UNSET}
        if self._rest is not None:
            given |= decode_rest(self._rest_decoder, body, self._struct.__struct_encode_fields__)
        if self._context in given:
            raise InvalidParams(f"params do not fit: `{self._context}` is the handler's context, not a param")
        return given

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
        """The params of a call, as the function would take it; InvalidParams if it would not, or not from JSON."""
        return self._encode_plain(args, kwargs) or self._encode_bound(args, kwargs)

    def _encode_plain(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes | None:
        """The params of a call that the decoder alone can check, ten times as fast; None if it cannot."""
        arguments = self._named(args, kwargs) if args else kwargs
        if self._rest is not None or arguments is None:
            return None
        try:
            raw = _encode(arguments if tuple(arguments) == self._names else self._in_order(arguments))
            self._decoder.decode(raw)
        # The slow path finds the same error, and explains it.
        except Exception:  # noqa: BLE001
            return None
        # This encoder writes NaN as null.
        return None if b"null" in raw else raw

    def _named(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object] | None:
        """All arguments by name; None if there are too many, or one comes twice."""
        arguments = {**dict(zip(self._positional, args, strict=False)), **kwargs}
        return arguments if len(arguments) == len(args) + len(kwargs) else None

    def _in_order(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """As the function names them, so that equal calls are equal as JSON; KeyError for a name it does not know."""
        places = {name: place for place, name in enumerate(self._names)}
        return {name: arguments[name] for name in sorted(arguments, key=places.__getitem__)}

    def _encode_bound(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bytes:
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
    """The same type; instants with their format, which msgspec writes only for those that need an offset."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and hint in _FORMATS:
        return Annotated[hint, Meta(extra_json_schema={"format": _FORMATS[hint]})]
    if origin is Annotated:
        return Annotated[(_with_format(args[0]), *args[1:])]
    if origin in (Union, UnionType):
        return union(map(_with_format, args))
    if origin in (list, dict, tuple, set, frozenset):
        return origin[tuple(arg if arg is ... else _with_format(arg) for arg in args)]
    return hint


def union(types: Iterable[Any]) -> Any:
    return Union[tuple(types)]  # noqa: UP007 - one forward reference among them has no `|`


def _told(default: object) -> dict[str, Any]:
    """A default as the schema has it; empty when it has no form in JSON."""
    try:
        return {"default": msgspec.to_builtins(default, str_keys=True)}
    except (TypeError, ValueError, RecursionError):
        return {}


# -- to and from JSON


def as_object(raw: bytes) -> bytes:
    return NO_PARAMS if raw == b"null" else raw


def decode(decoder: msgspec.json.Decoder[Any], raw: bytes | Raw, within: str = "") -> Any:
    try:
        return decoder.decode(raw)
    # A TypeError comes from a set with items that cannot be hashed.
    except (msgspec.MsgspecError, TypeError) as error:
        raise InvalidParams(f"params do not fit: {within}{error}") from None
    except RecursionError:
        raise InvalidParams(f"params do not fit: {within}nested too deeply") from None


_encode = msgspec.json.Encoder().encode
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])


def decode_rest(decoder: msgspec.json.Decoder[Any], raw: bytes, known: Iterable[str]) -> dict[str, object]:
    """Arguments beyond the named ones, each decoded by itself."""
    members = decode(_MEMBERS, raw)
    return {name: decode(decoder, members[name], f"`{name}`: ") for name in members.keys() - set(known)}


# Not msgspec's encoder: it would write NaN as null.
_write = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _member(name: str, value: object) -> bytes:
    try:
        text = _write(msgspec.to_builtins(value, str_keys=True))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParams(f"argument {name!r} has no form in JSON: {error}") from None
    return f"{_write(name)}:{text}".encode()
