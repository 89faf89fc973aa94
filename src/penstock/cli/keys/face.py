"""Keys as people see them."""

from penstock.cli import ink
from penstock.cli.machine import print_json
from penstock.model.key_wire import MadeKey


def show_new(made: MadeKey, *, as_json: bool) -> None:
    """Print a new key alone on stdout, so that it can be piped, and what to do with it on stderr."""
    if as_json:
        print_json(made)
        return
    ink.say(made.key)
    until = f"until {made.expires_at:%Y-%m-%d %H:%M} UTC" if made.expires_at else "until it is revoked"
    ink.say(f"{made.id} ({made.name}) is good for {', '.join(made.scopes)}, {until}", err=True)
    ink.say("it is shown this once: keep it, and give it to programs as PENSTOCK_KEY", err=True)
