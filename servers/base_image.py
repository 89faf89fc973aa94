"""A base image made of this machine's own programs, where none can be pulled from a registry.

It has what `python:3.13-slim` is used for here: a shell, the account tools, and this Python in /usr/local with pip.
"""

import io
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from servers.launch import on_path

PROGRAMS = ("sh", "cat", "env", "id", "ls", "mkdir", "rm", "sleep", "useradd", "groupadd")
LEFT_OUT = frozenset({"__pycache__", "dist-packages", "idlelib", "site-packages", "test", "tkinter", "turtledemo"})
ACCOUNTS = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n"}
COPIED = (
    "/etc/login.defs",
    "/etc/nsswitch.conf",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/share/python-wheels",
)
WHEELS_NEED = ("libdl", "libgcc_s", "libm", "libnss_*", "libpthread", "libresolv", "librt", "libstdc++", "libutil")
"""Libraries that wheels take for granted on every Linux."""

MERGED = ("bin", "sbin", "lib", "lib64")
FOLDERS = {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o755, "run": 0o755, "home": 0o755, "var/lib": 0o755}


def write_base_image(file: Path) -> None:
    """Write the image's one layer, to be imported by an engine."""
    with tarfile.open(file, "w") as tar:
        for link in MERGED:
            if (place := Path("/", link)).is_symlink():
                _add_entry(tar, link, tarfile.SYMTYPE, target=str(place.readlink()))
        for folder, mode in FOLDERS.items():
            _add_entry(tar, folder, tarfile.DIRTYPE, mode=mode)
        for name, text in ACCOUNTS.items():
            _add_text(tar, name, text)
        for target, source in {target: source for source, target in _files()}.items():
            tar.add(source.resolve(), target, recursive=False)
        for name in ("python", "python3"):
            _add_entry(tar, f"usr/local/bin/{name}", tarfile.SYMTYPE, target=_interpreter().name)


def _files() -> Iterator[tuple[Path, str]]:
    """Every file to be copied, and its path in the image."""
    programs = [Path(on_path(name, "coreutils and passwd")) for name in PROGRAMS]
    python = list(_python())
    for file in (*programs, *_libraries([*programs, *(file for file, _ in python)])):
        yield file, str(file.parent.resolve() / file.name)
    yield from python
    for place in map(Path, COPIED):
        for file in (place, *place.rglob("*")):
            if file.is_file():
                yield file, str(file)


def _python() -> Iterator[tuple[Path, str]]:
    """The interpreter and its standard library, moved to /usr/local."""
    yield _interpreter(), f"/usr/local/bin/{_interpreter().name}"
    library = Path(sysconfig.get_path("stdlib"))
    for file in (*_below(library), *_below(library / "site-packages" / "pip")):
        yield file, f"/usr/local/lib/{library.name}/{file.relative_to(library)}"


def _interpreter() -> Path:
    return Path(sys.base_prefix, "bin", f"python{sysconfig.get_python_version()}").resolve()


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".a" and not LEFT_OUT & set(path.relative_to(folder).parts):
            yield path


def _libraries(files: Iterable[Path]) -> list[Path]:
    """The shared libraries that these need, with the loader."""
    binaries = [str(file) for file in files if file.suffix == ".so" or "." not in file.name or "bin" in file.parts]
    told = subprocess.run(["/usr/bin/ldd", *binaries], check=False, capture_output=True, text=True).stdout
    words = {word for line in told.splitlines() if line.startswith("\t") for word in line.split()}
    found = {Path(word) for word in words if word.startswith("/") and not word.endswith(":")}
    beside = {file.parent for file in found if file.name == "libc.so.6"}
    return sorted(found.union(*(folder.glob(f"{name}.so.*") for folder in beside for name in WHEELS_NEED)))


def _add_entry(tar: tarfile.TarFile, name: str, kind: bytes, *, mode: int = 0o755, target: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname = kind, mode, target
    tar.addfile(entry)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))
