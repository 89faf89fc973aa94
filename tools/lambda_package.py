"""Builds the package of the Lambda functions: Penstock with the extras aws and s3, and the libraries they need, pinned.

    python -m tools.lambda_package build/lambda.zip
    python -m tools.lambda_package build/lambda.zip --python 3.14 --architecture arm64

The same sources and pins give the same bytes. Of botocore only the services are kept that Penstock calls.
"""

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "requirements" / "runtime.txt"
DISTRIBUTION = "penstock-jobs"
EXTRAS = ("aws", "s3")
SERVICES = ("dynamodb", "ecs", "sns", "sqs", "sts")
"""What Penstock calls by botocore; sts is for credentials."""
KEPT_DATA = ("endpoints.json", "partitions.json", "sdk-default-configuration.json", "_retry.json")
UNUSED = ("apsw", "uvicorn", "click")
"""Libraries of the core that no function imports: SQLite, the web server and the command line."""
PLATFORMS = {"x86_64": "x86_64-manylinux_2_34", "arm64": "aarch64-manylinux_2_34"}
"""The C library of Amazon Linux 2023, on which the runtimes of Lambda are."""
MOST_UNPACKED = 60_000_000
RECORDS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")
"""What installers leave beside a library."""
DATE = (1980, 1, 1, 0, 0, 0)


def main(words: Sequence[str]) -> int:
    options = _parse(words)
    with tempfile.TemporaryDirectory(prefix="penstock-lambda-") as folder:
        place = Path(folder) / "package"
        install(place, options.python, options.architecture)
        prune(place)
        is_compiled = compile_all(place, options.python)
        unpacked = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        options.target.parent.mkdir(parents=True, exist_ok=True)
        write_zip(place, options.target)
    size = options.target.stat().st_size
    bytecode = (
        "" if is_compiled else f"; without bytecode, as there is no python{options.python} here: it starts slower"
    )
    print(
        f"{options.target}: {size / 1e6:.1f} MB, {unpacked / 1e6:.1f} MB unpacked, for python{options.python} "
        f"on {options.architecture}{bytecode}"
    )
    if unpacked > MOST_UNPACKED:
        print(f"more than {MOST_UNPACKED / 1e6:.0f} MB unpacked: every cold start pays for it", file=sys.stderr)
        return 1
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.lambda_package", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", type=Path, help="the zip to write")
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", default=here, metavar="X.Y", help=f"version of the runtime  [default: {here}]")
    machine = "arm64" if os.uname().machine in {"aarch64", "arm64"} else "x86_64"
    parser.add_argument("--architecture", choices=PLATFORMS, default=machine, help=f"[default: {machine}]")
    return parser.parse_args(words)


def install(place: Path, python: str, architecture: str) -> None:
    """Install Penstock from its sources, and its libraries from the pins, for that runtime."""
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        pins.write_text("".join(pinned(closure(python, architecture))), "utf-8")
        _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
        (wheel,) = Path(folder).glob("*.whl")
        shared = ("--quiet", "pip", "install", "--target", str(place), "--no-deps", "--python", sys.executable)
        target = ("--python-version", python, "--python-platform", PLATFORMS[architecture])
        uv = str(Path(sys.executable).parent / "uv")
        _run(uv, *shared, *target, "--only-binary", ":all:", "--require-hashes", "--requirement", str(pins))
        _run(uv, *shared, str(wheel))


def _run(*words: str, cwd: Path | None = None) -> None:
    # So that the wheel has the same times in every checkout.
    environ = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    told = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(f"{' '.join(words[:4])} … failed:\n{told.stderr}")


def closure(python: str, architecture: str) -> set[str]:
    """The names of all libraries that Penstock needs with its extras, for that runtime; of what is installed here."""
    environment: dict[str, str | Set[str]] = {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": "aarch64" if architecture == "arm64" else "x86_64",
    }
    found: set[tuple[str, str]] = set()
    waiting = [(DISTRIBUTION, extra) for extra in ("", *EXTRAS)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) not in found:
            found.add((name, extra))
            waiting += _needed(name, extra, environment)
    return {name for name, _ in found} - {DISTRIBUTION, *UNUSED}


def _needed(name: str, extra: str, environment: Mapping[str, str | Set[str]]) -> Iterator[tuple[str, str]]:
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({**environment, "extra": extra}):
            plain = canonicalize_name(requirement.name)
            yield plain, ""
            yield from ((plain, more) for more in requirement.extras)


def pinned(names: set[str]) -> Iterator[str]:
    """The lines of the pins for these libraries, with their hashes."""
    is_wanted = False
    for line in PINS.read_text("utf-8").splitlines(keepends=True):
        if found := re.match(r"([A-Za-z0-9._-]+)==", line):
            is_wanted = canonicalize_name(found[1]) in names
        if is_wanted:
            yield line


def prune(place: Path) -> None:
    """Remove what no function needs, and what differs from one installation to the next."""
    for name in ("bin", "__pycache__"):
        for folder in [*place.rglob(name)]:
            shutil.rmtree(folder, ignore_errors=True)
    for record in [file for name in RECORDS for file in place.glob(f"*.dist-info/{name}")]:
        record.unlink()
    (place / ".lock").unlink(missing_ok=True)
    data = place / "botocore" / "data"
    for entry in data.iterdir():
        if entry.is_dir() and entry.name not in SERVICES:
            shutil.rmtree(entry)
        elif entry.is_file() and entry.name not in KEPT_DATA:
            entry.unlink()
    for unused in ("penstock/lab", "penstock/testing"):
        shutil.rmtree(place / unused, ignore_errors=True)


def compile_all(place: Path, python: str) -> bool:
    """Add bytecode, which Lambda cannot keep by itself; whether there is an interpreter of that version for it."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = sys.executable if python == here else shutil.which(f"python{python}")
    if interpreter is None:
        return False
    # Neither times nor places of this machine are in it; it is not compared with its source.
    words = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(place), "-p", "/var/task")
    told = subprocess.run([interpreter, *words, str(place)], capture_output=True, check=False)
    return told.returncode == 0


def write_zip(place: Path, target: Path) -> None:
    """The files in order, all with one date and plain rights."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as package:
        for file in sorted(path for path in place.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(place).as_posix(), DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
