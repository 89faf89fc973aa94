"""The Lua of the broker: one script per file in `lua/`, read once. Each runs whole or not at all, in one round trip."""

from hashlib import sha1
from importlib.resources import files

from msgspec import Struct


class Script(Struct, frozen=True):
    """The text of a script, and the digest by which a server runs it again."""

    text: str
    sha: str


def load(name: str) -> Script:
    """A script with the shared functions inserted after its first line, which holds its flags."""
    shebang, _, body = _read(name).partition("\n")
    text = f"{shebang}\n{_read('shared')}\n{body}"
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return (files("penstock.broker.redis") / "lua" / f"{name}.lua").read_text("utf-8")


PUBLISH = load("publish")
PUT_BACK = load("put_back")
TAKE = load("take")
LEAVE = load("leave")
EPOCH = load("epoch")
