"""Files and modules of the project that the documentation names exist."""

import re
from pathlib import Path

import pytest

from tools.shape import ROOT

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?<![\w/])(?:[\w.*-]+/)+[\w*-]+\.(?:py|sql|lua)\b")
MODULE = re.compile(r"penstock(?:\.[a-z_0-9]+){2,}")
BASES = (ROOT, ROOT / "src" / "penstock")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_and_modules_that_a_page_names_exist(page: Path) -> None:
    text = (ROOT / page).read_text("utf-8")
    quoted = CODE.findall(text)
    # Blocks of the design pages are drawings; those of the guides show files of their readers.
    files = FILE.findall(text if page.parent.name == "design" else " ".join(quoted))
    modules = [code.replace(".", "/") for code in quoted if MODULE.fullmatch(code)]
    assert [file for file in files if not any(any(base.glob(file)) for base in BASES)] == []
    assert [name for name in modules if not any((ROOT / "src").glob(f"{name}*"))] == []
