"""What a peer needs installed: a virtualenv per peer or server, node_modules for Node, made when first needed."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

from catalog import Peer
from places import PROJECT_BIN, SOURCE, Places
from processes import StepFailed, output_of

INSTALL_SECONDS = 600.0
PYTHON = os.environ.get("BENCH_PYTHON") or sys.executable


class Unavailable(Exception):
    """This peer cannot run here; the message says why, and what would help."""


def command_of(peer: Peer, places: Places) -> list[str]:
    """The command line of the peer's adapter, its packages installed. Raises Unavailable."""
    if peer.node:
        return [_node(places), str(SOURCE / "peers" / f"{peer.adapter}.cjs")]
    if not peer.needs_virtualenv:
        return [_project_python(peer, places), "-m", "peers", peer.adapter]
    return [str(virtualenv(peer.adapter, places) / "bin" / "python"), "-m", "peers", peer.adapter]


def virtualenv(name: str, places: Places) -> Path:
    """The folder of a virtualenv with exactly requirements/NAME.txt in it. Raises Unavailable."""
    folder = places.home / "venvs" / name
    requirements = SOURCE / "requirements" / f"{name}.txt"
    fingerprint = hashlib.sha256(requirements.read_bytes() + PYTHON.encode()).hexdigest()
    if not _is_installed(folder, fingerprint):
        print(f"installing {name} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        for command in _install_commands(folder, requirements):
            _install(command, name, places)
        _mark_installed(folder, fingerprint)
    return folder


def _install_commands(folder: Path, requirements: Path) -> list[list[str]]:
    python, pinned = str(folder / "bin" / "python"), ["--require-hashes", "-r", str(requirements)]
    if uv := shutil.which("uv", path=f"{PROJECT_BIN}{os.pathsep}{os.environ.get('PATH', '')}"):
        return [
            [uv, "venv", "--quiet", "--python", PYTHON, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", python, *pinned],
        ]
    return [[PYTHON, "-m", "venv", str(folder)], [python, "-m", "pip", "install", "--quiet", *pinned]]


def _node(places: Places) -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise Unavailable("Node and npm are not installed")
    folder = places.home / "node"
    fingerprint = hashlib.sha256((SOURCE / "node" / "package-lock.json").read_bytes()).hexdigest()
    if not _is_installed(folder, fingerprint):
        print("installing the Node peers …", flush=True)
        folder.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCE / "node" / name, folder / name)
        _install([npm, "ci", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"], "node", places)
        _mark_installed(folder, fingerprint)
    return node


def _project_python(peer: Peer, places: Places) -> str:
    """The interpreter of the peer's checkout: of this one, it is the one that runs the bench."""
    python = str(peer.checkout / ".venv" / "bin" / "python") if peer.checkout else sys.executable
    try:
        _run([python, "-c", "import penstock; penstock.Penstock"], peer.adapter, places)
    except (StepFailed, OSError) as failure:
        raise Unavailable(f"penstock cannot be imported by {python}: run `make setup` in its checkout") from failure
    return python


def _install(command: list[str], name: str, places: Places) -> None:
    try:
        _run(command, name, places)
    except StepFailed as failure:
        raise Unavailable(f"could not be installed: {failure}") from failure


def _run(command: list[str], name: str, places: Places) -> None:
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    output_of(command, env=env, log=places.logs / f"install-{name}.log", timeout=INSTALL_SECONDS, cwd=places.home)


def _is_installed(folder: Path, fingerprint: str) -> bool:
    stamp = folder / "installed"
    return stamp.exists() and stamp.read_text() == fingerprint


def _mark_installed(folder: Path, fingerprint: str) -> None:
    (folder / "installed").write_text(fingerprint)
