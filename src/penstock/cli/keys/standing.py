"""`penstock keys list`"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import ink
from penstock.cli.commands import command
from penstock.cli.keys.desk import KeyAccess, options_of_keys
from penstock.cli.machine import print_json
from penstock.cli.spans import ago
from penstock.cli.table import print_table
from penstock.model.key_wire import KeyItem, KeyList, key_item
from penstock.model.timing import Clock, SystemClock

if TYPE_CHECKING:
    from penstock.engine.keys import Keys

HEADS = ("KEY", "NAME", "SCOPES", "QUEUES", "CREATED", "EXPIRES")


@command("list", "penstock keys list --json")
@options_of_keys
def standing(*, direct: bool, data: str | None, url: str | None, config: Path | None, as_json: bool) -> None:
    """List the keys that were not revoked: what each may do, and until when."""
    found = KeyAccess(url, config, data, direct=direct).ask(lambda client: client.keys(), _in_store)
    if as_json:
        print_json(KeyList(tuple(found)))
    elif found:
        print_table(HEADS, [_row(key, SystemClock()) for key in found], right=("CREATED", "EXPIRES"))
    else:
        ink.say("no keys; make one with: penstock keys create --name ops --scope admin", err=True)


async def _in_store(keys: "Keys") -> Sequence[KeyItem]:
    return tuple(map(key_item, await keys.list()))


def _row(key: KeyItem, clock: Clock) -> tuple[str, ...]:
    queues = "all" if key.queues is None else ", ".join(key.queues)
    return (key.id, key.name, ", ".join(key.scopes), queues, ago(key.created_at, clock), _expiry(key, clock))


def _expiry(key: KeyItem, clock: Clock) -> str:
    if key.expires_at is None:
        return "never"
    shown = ago(key.expires_at, clock)
    return shown if key.expires_at > clock.now() else ink.warned(f"expired {shown}")
