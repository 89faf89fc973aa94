"""Hooks for schemathesis: JSON Schema takes 5.0 for an integer and has no largest one; the API differs in both."""

from typing import Any

import schemathesis

LARGEST = 2**63


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: Any, kwargs: dict[str, Any]) -> None:
    case.body = _as_we_read_numbers(case.body)


def _as_we_read_numbers(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            return value if -LARGEST <= value < LARGEST else 0
        case float() if value.is_integer() and abs(value) < LARGEST:
            return int(value)
        case list():
            return [_as_we_read_numbers(one) for one in value]
        case dict():
            return {name: _as_we_read_numbers(one) for name, one in value.items()}
        case _:
            return value
