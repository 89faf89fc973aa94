"""What `penstock up` says once it is ready: where it is, what it can run, and what to try."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.cli.fetch import fetch
from penstock.cli.ink import bold, dim, good, say
from penstock.model.errors import PenstockError
from penstock.model.type_wire import TypeList
from penstock.model.workers import JobType

EXAMPLES = {"string": "…", "integer": 1, "number": 1.5, "boolean": "true", "array": "[]", "object": "{}"}
TYPES_SHOWN = 8


async def print_banner(url: str, folder: Path, app: str | None, key: str = "") -> None:
    """Print the banner of a server that answers at `url` and keeps its data in `folder`."""
    from penstock import __version__

    types = await _types(url, key)
    say()
    say(f"  {good('●')} {bold('Penstock')} {__version__} is up at {bold(url)}")
    say()
    say(f"    {dim('data')}   {folder}")
    say(f"    {dim('types')}  {_names(types, app)}")
    say()
    for line in things_to_try(url, types or ()):
        say(f"    {dim('try')}    {line}")
    say(f"    {dim('stop')}   Ctrl-C: running jobs finish first")
    say()


def things_to_try(url: str, types: Sequence[JobType]) -> list[str]:
    """Three commands that work as they stand."""
    server = "" if url.endswith("127.0.0.1:7373") else f" --url {url}"
    if not types:
        return [f"penstock worker module:app{server}", f"penstock doctor{server}", f"curl {url}/v1/jobs"]
    submit = f"penstock jobs submit {types[0].name}{_params(types[0])} --wait{server}"
    return [submit, f"penstock jobs list{server}", f"curl {url}/v1/queues"]


async def _types(url: str, key: str) -> Sequence[JobType] | None:
    try:
        _, body = await fetch(url, "/v1/types", key)
        return msgspec.json.decode(body, type=TypeList).types
    except (PenstockError, msgspec.MsgspecError):
        # The banner is a courtesy: it must not stop a server that is otherwise well, or asks for a key we have not.
        return None


def _names(types: Sequence[JobType] | None, app: str | None) -> str:
    if types is None and app is not None:
        return f"those of {app}"
    if not types:
        return "none yet; a worker declares them" if app is None else f"none in {app}"
    shown = ", ".join(declared.name for declared in types[:TYPES_SHOWN])
    return shown + (f" and {len(types) - TYPES_SHOWN} more" if len(types) > TYPES_SHOWN else "")


def _params(declared: JobType) -> str:
    """`name=value` for each of the params that must be given, with a value of its kind."""
    schema = declared.params_schema or {}
    kinds = {name: schema.get("properties", {}).get(name, {}).get("type") for name in schema.get("required", ())}
    return "".join(f" {name}={EXAMPLES.get(kind, '…')}" for name, kind in kinds.items())
