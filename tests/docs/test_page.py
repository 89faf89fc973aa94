"""The sources of the page and what is built of them: types of the API, weight, and what its code may not use."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tools.page import BUILT, MANIFEST, PAGE, is_current, sources
from tools.page_types import TYPES, write_types

KB = 1000
FIRST_VIEW = 60 * KB
EVERYTHING = 110 * KB
STYLE = 10 * KB
IN_WHEEL = 600 * KB
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function\(|srcdoc"
    r"|createContextualFragment|setAttribute\(|sessionStorage|document\.cookie|https?://(?!www\.w3\.org|example\.com)"
)


@pytest.fixture
def built() -> Path:
    if not is_current():
        pytest.fail("the built page is not that of the sources: make page")
    return BUILT


def code() -> list[Path]:
    return [path for path in sources() if path.suffix in {".ts", ".tsx"} and path != TYPES]


def test_the_types_of_the_page_are_those_of_the_api() -> None:
    assert TYPES.read_text("utf-8") == write_types(), "run: .venv/bin/python -m tools.page_types"


def test_no_code_of_the_page_makes_html_of_text_or_names_another_host() -> None:
    found = [
        f"{path.relative_to(PAGE)}: {line.strip()}"
        for path in code()
        for line in path.read_text("utf-8").splitlines()
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_every_file_of_the_page_says_what_it_is_and_is_short() -> None:
    for path in code():
        text = path.read_text("utf-8")
        if path.suffix == ".tsx" or not path.name.endswith(".d.ts"):
            assert text.startswith("/**"), path
        assert len(text.splitlines()) <= 400, path


def test_the_lock_names_no_registry() -> None:
    lock = json.loads((PAGE / "package-lock.json").read_text("utf-8"))
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert all("integrity" in one and "resolved" not in one for one in packages.values())


def test_the_first_view_and_all_of_the_page_are_light(built: Path) -> None:
    scripts = {path.name: path.read_text("utf-8") for path in built.glob("*.js")}
    index = (built / "index.html").read_text("utf-8")
    wanted = [name for name in scripts if f'"{name}"' in index or name.startswith(("overview-", "picture-"))]
    assert len(wanted) == 3
    needed: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in needed:
            needed.add(name)
            wanted += re.findall(r'(?:from|import)\s*"\./([\w.-]+\.js)"', scripts[name])
    assert sum(_packed(built / name) for name in needed) <= FIRST_VIEW
    assert sum(_packed(built / name) for name in scripts) <= EVERYTHING
    assert sum(_packed(path) for path in built.glob("*.css")) <= STYLE
    assert sum(path.stat().st_size for path in built.iterdir()) <= IN_WHEEL


def _packed(path: Path) -> int:
    packed = path.with_name(f"{path.name}.gz").read_bytes()
    assert gzip.decompress(packed) == path.read_bytes()
    return len(packed)


def test_the_manifest_names_every_file(built: Path) -> None:
    files = set(json.loads((built / MANIFEST).read_text("ascii"))["files"])
    there = {path.name for path in built.iterdir() if path.suffix != ".gz"}
    assert there - files == {"index.html", MANIFEST}
    assert files <= there
