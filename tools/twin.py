"""Writes `client/aio.py`, the client for asyncio, from `client/client.py`, the blocking one.

    python tools/twin.py

Every method is rewritten by the same rules; what differs otherwise is listed in EDITS. A test compares the files.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCKING = ROOT / "src/penstock/client/client.py"
ASYNC = ROOT / "src/penstock/client/aio.py"

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
)
"""Patterns and what each match becomes, one after the other."""

EDITS = (
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


def main() -> int:
    ASYNC.write_text(async_text(BLOCKING.read_text("utf-8")), "utf-8")
    return 0


def async_text(blocking: str) -> str:
    """The text of `aio.py` for this text of `client.py`; ValueError if an edit does not apply exactly once."""
    text = blocking
    for pattern, becomes in RULES:
        text = re.sub(pattern, becomes, text, flags=re.MULTILINE)
    for old, new in EDITS:
        if text.count(old) != 1:
            raise ValueError(f"tools/twin.py: expected once in client.py, found {text.count(old)} times: {old!r}")
        text = text.replace(old, new)
    return format_code(CLASS_DOCSTRING.sub(ASYNC_DOCSTRING, text))


def format_code(text: str) -> str:
    """The text as `make format` leaves it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(ASYNC), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


if __name__ == "__main__":
    sys.exit(main())
