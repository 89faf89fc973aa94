"""What is published: the files of the wheel and of the sdist, and the core by itself, without any extra."""

import json
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

from penstock.model.extras import DISTRIBUTION, LIBRARIES
from tests.system.harness import ROOT, WITHIN
from tools.page import BUILT

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAMED = f"penstock_jobs-{PROJECT['version']}"
WRITTEN_BY_THE_BUILD = {"PKG-INFO", ".gitignore"}
SHARED = {"PENSTOCK_STORE_URL": "postgresql://127.0.0.1:1/jobs", "PENSTOCK_BROKER_URL": "redis://127.0.0.1:1"}
CONTAINERS = {**SHARED, "PENSTOCK_FLEET_BACKEND": "containers"}
KUBERNETES = {**SHARED, "PENSTOCK_FLEET_BACKEND": "kubernetes"}
CHAPTERS = ("submit and wait", "bulk", "retry", "timeout", "cancel", "killed worker", "output file", "burst")
APP = "penstock.lab.demo.jobs:app"
PAGE_SOURCES = "penstock/dashboard/page/"


class Built(NamedTuple):
    """The two files of a release."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert {file.name for file in folder.iterdir()} == {f"{NAMED}-py3-none-any.whl", f"{NAMED}.tar.gz"}
    return Built(folder / f"{NAMED}-py3-none-any.whl", folder / f"{NAMED}.tar.gz")


@pytest.fixture(scope="module")
def core(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtualenv with the wheel and what it needs, and no extra."""
    place = tmp_path_factory.mktemp("core") / "venv"
    uv, python = Path(sys.executable).parent / "uv", place / "bin" / "python"
    pinned = ["--constraint", str(ROOT / "requirements" / "runtime.txt")]
    for words in (
        ["venv", "--python", sys.executable, str(place)],
        ["pip", "install", "--python", str(python), *pinned, str(built.wheel)],
    ):
        told = subprocess.run([uv, "--quiet", *words], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
    return place


def committed() -> set[str]:
    """The files that are, or would be, in the repository; tests that need them are skipped where there is none."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    told = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.splitlines())


def page_files() -> set[str]:
    """The files of the page, which are built and not committed."""
    files = {f"penstock/dashboard/built/{path.name}" for path in BUILT.iterdir()}
    assert "penstock/dashboard/built/manifest.json" in files
    return files


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    held = {name for name in ZipFile(built.wheel).namelist() if ".dist-info/" not in name}
    package = {name.removeprefix("src/") for name in committed() if name.startswith("src/")}
    assert held == {name for name in package if not name.startswith(PAGE_SOURCES)} | page_files()


def test_the_sdist_holds_all_that_is_committed_but_the_set_up_of_tools(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        held = {member.name.removeprefix(f"{NAMED}/") for member in archive.getmembers()}
    page = {f"src/{name}" for name in page_files()}
    assert held - WRITTEN_BY_THE_BUILD == {name for name in committed() if not name.startswith(".")} | page
    assert {"tests/conftest.py", "docs/quickstart.md", "examples/quickstart.py"} <= held


def test_the_wheel_says_its_name_its_command_and_every_python(built: Built) -> None:
    wheel = ZipFile(built.wheel)
    about = Parser().parsestr(wheel.read(f"{NAMED}.dist-info/METADATA").decode())
    assert about["Name"] == DISTRIBUTION
    versions = {one.rpartition(" ")[2] for one in about.get_all("Classifier", ()) if ":: Python ::" in one}
    assert versions >= {"3.11", "3.12", "3.13", "3.14", "3.15"}
    assert b"penstock = penstock.cli:main" in wheel.read(f"{NAMED}.dist-info/entry_points.txt")


def penstock(
    core: Path, folder: Path, *words: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTHON"))}
    return subprocess.run(
        [core / "bin" / "penstock", *words],
        cwd=folder,
        env={**clean, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=2 * WITHIN,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "environ", "extras"),
    [
        (["api"], SHARED, "postgres,redis"),
        (["scheduler"], SHARED, "postgres,redis"),
        (["worker", APP, "--direct"], SHARED, "postgres,redis"),
        (["keys", "create", "--name", "ops", "--scope", "admin", "--direct"], SHARED, "postgres,redis"),
        (["db", "migrate"], SHARED, "postgres"),
        (["bench", "--store", SHARED["PENSTOCK_STORE_URL"]], {}, "postgres"),
        (["up", "--port", "0"], {"PENSTOCK_BROKER_URL": "redis://127.0.0.1:1"}, "redis"),
        (["up", "--port", "0"], {"PENSTOCK_OBJECTS_URL": "s3://bucket"}, "s3"),
        (["autoscaler", APP], CONTAINERS, "postgres,redis,containers"),
        (["autoscaler", APP], KUBERNETES, "postgres,redis,kubernetes"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else one if isinstance(one, str) else "",
)
def test_missing_extras_are_told_in_one_line_with_the_command_that_installs_them(
    core: Path, tmp_path: Path, words: list[str], environ: Mapping[str, str], extras: str
) -> None:
    told = penstock(core, tmp_path, *words, environ=environ)
    assert told.returncode > 0
    line, *others = told.stderr.splitlines()
    assert not others
    assert line.startswith(f"penstock: {LIBRARIES[extras.partition(',')[0]]}")
    assert line.endswith(f" not installed: pip install 'penstock-jobs[{extras}]'")


def test_the_doctor_names_every_extra_that_the_settings_need(core: Path, tmp_path: Path) -> None:
    environ = {**SHARED, "PENSTOCK_OBJECTS_URL": "s3://bucket", "PENSTOCK_FLEET_BACKEND": "containers"}
    told = json.loads(penstock(core, tmp_path, "doctor", "--json", environ=environ).stdout)
    advised = {one["name"]: one["remedy"] for one in told["findings"] if "pip install" in one["remedy"]}
    assert advised == {
        "speed-ups": "optional: pip install 'penstock-jobs[fast]'",
        "shard 0": "pip install 'penstock-jobs[postgres]'",
        "broker": "pip install 'penstock-jobs[redis]'",
        "objects": "pip install 'penstock-jobs[s3]'",
        "fleets": "pip install 'penstock-jobs[containers]'",
    }


def test_the_demo_tells_its_whole_story_without_any_extra_and_leaves_nothing_behind(core: Path, tmp_path: Path) -> None:
    told = penstock(core, tmp_path, "demo", "--jobs", "500", environ={"TMPDIR": str(tmp_path)})
    assert told.returncode == 0, told.stderr
    assert all(f"\n  {chapter}" in told.stdout for chapter in CHAPTERS)
    assert "All as told" in told.stdout
    assert "make " not in told.stdout, "there is no Makefile beside an installed package"
    assert list(tmp_path.iterdir()) == []


def test_the_page_is_there_where_only_the_wheel_is_installed(core: Path, tmp_path: Path) -> None:
    script = "from penstock.dashboard.built_files import BuiltFiles; print(len(BuiltFiles().read().files))"
    told = subprocess.run([core / "bin" / "python", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert int(told.stdout) > 10, told.stderr


def test_a_release_is_not_made_without_the_page(tmp_path: Path) -> None:
    """From a copy of the checkout in which the page cannot be built."""
    copy = tmp_path / "checkout"
    for name in committed():
        if name.startswith(("src/penstock/dashboard/", "src/penstock/__init__", "tools/page")) or "/" not in name:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    (copy / "src/penstock/dashboard/page/package-lock.json").write_text("{}")
    for target in ("wheel", "sdist"):
        command = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "--target",
            target,
            "--directory",
            str(tmp_path / "dist"),
        ]
        told = subprocess.run(command, cwd=copy, capture_output=True, text=True)
        assert told.returncode != 0
        assert "the packages of the page could not be installed" in told.stderr
    assert not list((tmp_path / "dist").glob("*"))
