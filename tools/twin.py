"""Writes `client/aio.py`, the client for asyncio, from `client/client.py`, the blocking one; and its parts.

    python tools/twin.py

Every method is rewritten by the same rules; what differs otherwise is listed as edits. A test compares the files.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CLIENT = ROOT / "src/penstock/client"

CLASS_DOCSTRING = re.compile(r'(?<=^class AsyncClient:\n    """).*?(?=    """)', re.DOTALL | re.MULTILINE)
ASYNC_DOCSTRING = """`Client` for asyncio: the same calls with the same guarantees, awaited. May be shared by tasks.

    Each event loop gets connections of its own.
"""

RULES = (
    (r"^    def (?!__init__)", r"    async def "),
    (r"__(enter|exit)__", r"__a\1__"),
    (r"\bself\.(_run|_perform|close|\w*_?transport\.close)\(", r"await self.\1("),
    (r"\b(Http)?Transport\b", r"Async\1Transport"),
    (r"\bIterator\b", "AsyncIterator"),
    (r"^( *)yield from (self\._follow\(\S+\))$", r"\1async for item in \2:\n\1    yield item"),
    (r"^( *)for block in blocks:$", r"\1async for block in blocks:"),
    (r"\bwith closing\(", "async with aclosing("),
    (r"\bimport closing$", "import aclosing"),
    (r"^( *)yield from (\S+)$", r"\1for item in \2:\n\1    yield item"),
    (r"^class Client:", "class AsyncClient:"),
    (r"\bClientSubscriptions\b", "AsyncClientSubscriptions"),
    (r"\bpenstock\.client\.subscriptions\b", "penstock.client.aio_subscriptions"),
    (r"\bRunExchange\b", "AsyncRunExchange"),
)
"""Patterns and what each match becomes, one after the other."""

CLIENT_EDITS = (
    (
        '"""The blocking client. `tools/twin.py` writes the one for asyncio from this file: run it after a change."""',
        '"""The client for asyncio. Written by `tools/twin.py` from `client.py`: change that and run the tool."""',
    ),
    ("import time\n", ""),
    ("import Callable, Iterable, AsyncIterator, Sequence", "import AsyncIterator, Iterable, Sequence"),
    ("import Reply, AsyncTransport", "import AsyncTransport, Reply"),
    ("        sleep: Callable[[float], None] = time.sleep,\n", ""),
    ("        self._sleep = sleep\n", ""),
    ("        self._protocol = ", "        self._clock = clock or SystemClock()\n        self._protocol = "),
    ("            clock or SystemClock(), rng", "            self._clock, rng"),
    ("            return (self._object", "            return await (self._object"),
    ("        self._sleep(step.span.total_seconds())", "        await self._clock.sleep(step.span)"),
)
"""Texts that occur once, after the rules, and what replaces them: an event loop sleeps by its clock."""

SUBSCRIPTION_EDITS = (
    (
        '"""Subscriptions, by the blocking client. `tools/twin.py` writes the same for asyncio from this file."""',
        '"""Subscriptions, for asyncio. Written by `tools/twin.py` from `subscriptions.py`: change that instead."""',
    ),
)


class Twin(NamedTuple):
    """A file of the blocking client, the one for asyncio, and the edits between them."""

    blocking: Path
    asynchronous: Path
    edits: Sequence[tuple[str, str]]


TWINS = (
    Twin(CLIENT / "client.py", CLIENT / "aio.py", CLIENT_EDITS),
    Twin(CLIENT / "subscriptions.py", CLIENT / "aio_subscriptions.py", SUBSCRIPTION_EDITS),
)


def main() -> int:
    for twin in TWINS:
        twin.asynchronous.write_text(async_text(twin), "utf-8")
    return 0


def async_text(twin: Twin) -> str:
    """The text for asyncio of the blocking file; ValueError if an edit does not apply exactly once."""
    text, name = twin.blocking.read_text("utf-8"), twin.blocking.name
    for pattern, becomes in RULES:
        text = re.sub(pattern, becomes, text, flags=re.MULTILINE)
    for old, new in twin.edits:
        if text.count(old) != 1:
            raise ValueError(f"tools/twin.py: expected once in {name}, found {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    return format_code(CLASS_DOCSTRING.sub(ASYNC_DOCSTRING, text), twin.asynchronous)


def format_code(text: str, path: Path) -> str:
    """The text as `make format` leaves it; imports are sorted anew, as names have changed."""
    sort = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--quiet",
        "--select",
        "I",
        "--fix",
        "--stdin-filename",
        str(path),
        "-",
    ]
    shape = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
    for command in (sort, shape):
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
