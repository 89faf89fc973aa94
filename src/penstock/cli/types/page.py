"""`penstock types list`"""

from datetime import timedelta
from pathlib import Path

from penstock.cli import ink, options
from penstock.cli.commands import command
from penstock.cli.machine import print_json
from penstock.cli.server import connected
from penstock.cli.spans import lasted
from penstock.cli.table import print_table
from penstock.model.retry import Retry
from penstock.model.type_wire import TypeItem, TypeList
from penstock.model.workers import JobType

HEADS = ("TYPE", "QUEUE", "RUNS AS", "RETRY", "TIMEOUT", "PARAMS", "ABOUT")


@command("list", "penstock types list --json")
@options.remote
def page(*, url: str | None, config: Path | None, as_json: bool) -> None:
    """List the job types that workers have declared, with their defaults and params."""
    with connected(url, config) as client:
        found = client.types()
    if as_json:
        print_json(TypeList(found))
    elif found:
        print_table(HEADS, [_row(declared) for declared in found], right=("TIMEOUT",))
    else:
        ink.say("no job types yet: start a worker with: penstock worker module:app", err=True)


def _row(declared: TypeItem) -> tuple[str, ...]:
    limit = declared.timeout_seconds
    timeout = lasted(timedelta(seconds=limit)) if limit is not None else "none"
    about = _renamed(declared) or (declared.description or "").partition("\n")[0]
    return (declared.name, declared.queue, declared.kind, _retry(declared.retry), timeout, _params(declared), about)


def _renamed(declared: TypeItem) -> str:
    if declared.run_as is not None:
        return f"run as {declared.run_as}"
    return f"runs {', '.join(declared.aliases)} too" if declared.aliases else ""


def _retry(retry: Retry) -> str:
    return f"{retry.kind} × {retry.max_attempts}" if retry.max_attempts > 1 else "none"


def _params(declared: JobType) -> str:
    """The names of the params; those that may be left out in brackets."""
    if declared.params_schema is None:
        return "any"
    needed = declared.params_schema.get("required", ())
    names = declared.params_schema.get("properties", {})
    return " ".join(name if name in needed else f"[{name}]" for name in names) or "none"
