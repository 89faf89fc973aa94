"""The pages a reader works through, cut into blocks: which are commands, and what a comment above one says of it.

A block of commands is run, unless the comment right above it says otherwise:

    <!-- not run: needs a Kubernetes cluster -->       and why
    <!-- run by tests/docs/test_readme.py -->          the test that runs it

A block whose first line is a comment that names a file, such as `# jobs.py`, is that file.
"""

import re
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = frozenset({"console", "python", "sh", "bash", "shell", "sql"})
FILES = frozenset({"python", "toml", "dockerfile"})
PAGES = {
    "README": ROOT / "README.md",
    "quickstart": ROOT / "docs/quickstart.md",
    **{page.stem: page for page in sorted((ROOT / "docs/guides").glob("*.md"))},
}

_BLOCK = re.compile(
    r"(?:<!-- (?P<comment>.*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_FILE = re.compile(r"# (?P<path>[\w/.-]+\.\w+|Dockerfile)\n")
_COMMAND = re.compile(r"^\$ (?P<text>(?:.*\\\n)*.*\n)", re.MULTILINE)


class Step(Struct, frozen=True):
    """A command, and what the page says that it prints; nothing said is nothing compared."""

    command: str
    told: str


class Block(Struct, frozen=True):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    comment: str

    @property
    def is_command(self) -> bool:
        return self.language in COMMANDS

    @property
    def not_run(self) -> str:
        """Why it is not run here; empty if it is."""
        return self.comment.partition("not run: ")[2]

    @property
    def run_by(self) -> str:
        """The test that runs it instead; empty if there is none."""
        return self.comment.partition("run by ")[2]

    @property
    def file(self) -> str:
        """The file that it is; empty if it is none."""
        named = _FILE.match(self.text) if self.language in FILES else None
        return named["path"] if named else ""

    @property
    def steps(self) -> list[Step]:
        """The commands of a block that is none of Python, in order."""
        if self.language != "console":
            return [Step(self.text, "")]
        parts = _COMMAND.split(self.text)[1:]
        return [Step(command.rstrip("\n"), told) for command, told in zip(parts[::2], parts[1::2], strict=True)]

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}"


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = PAGES[page].read_text()
    return [
        Block(page, text.count("\n", 0, one.start()) + 1, one["language"], one["text"], one["comment"] or "")
        for one in _BLOCK.finditer(text)
    ]
