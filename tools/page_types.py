"""Writes the types of the API for the page, from what the API says of itself: `python -m tools.page_types`.

tests/docs/test_page.py compares the file with what this would write.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.api.app import OPERATIONS
from penstock.api.openapi import document
from tools.page import PAGE

TYPES = PAGE / "schema.ts"
HEAD = "// Written by tools/page_types.py from the API's own description. Do not edit.\n"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_NAME = re.compile(r"[A-Za-z_]\w*")

Json = Mapping[str, Any]


def write_types() -> str:
    """The text of the file: one type for each schema of the API, by name."""
    schemas: Json = document(OPERATIONS, needs_keys=True)["components"]["schemas"]
    return HEAD + "".join(f"\nexport type {name} = {_type(schemas[name])};\n" for name in sorted(schemas))


def _type(schema: Json, indent: str = "") -> str:
    """A schema as TypeScript writes it; what says nothing may be anything."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(one, ensure_ascii=True) for one in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one, indent) for one in schema["anyOf"]))
    match schema.get("type"):
        case "array":
            return f"({_type(schema.get('items', {}), indent)})[]"
        case "object":
            return _object(schema, indent)
        case str(name):
            return PLAIN[name]
        case _:
            return "unknown"


def _object(schema: Json, indent: str) -> str:
    if "properties" not in schema:
        values = schema.get("additionalProperties", True)
        return f"Record<string, {_type(values, indent) if isinstance(values, dict) else 'unknown'}>"
    required, deeper = set(schema.get("required", ())), f"{indent}  "
    lines = [
        f"{deeper}{name if _NAME.fullmatch(name) else json.dumps(name)}{'' if name in required else '?'}: "
        f"{_type(one, deeper)};\n"
        for name, one in schema["properties"].items()
    ]
    return "{\n" + "".join(lines) + indent + "}"


if __name__ == "__main__":
    TYPES.write_text(write_types(), "utf-8")
