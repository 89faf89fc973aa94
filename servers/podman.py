"""Podman's service: a container engine that speaks the Docker API, with storage and settings of its own."""

import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from servers.launch import Launched, Missing, on_path

IMAGE = "localhost/penstock-test:empty"
CHECKOUT = Path(__file__).resolve().parents[1]
SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")

_CONTAINERS = """\
[containers]
netns = "host"
cgroupns = "host"
default_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{folder}/tmp"
conmon_path = ["{folder}/conmon"]
"""
_STORAGE = """\
[storage]
driver = "{driver}"
runroot = "{folder}/run"
graphroot = "{folder}/data"
"""
# Podman looks for the news that the memory ran out in the container's folder; conmon leaves it where it was started.
_CONMON = """\
#!/bin/sh
for word in "$@"; do
    [ "$previous" = -b ] && cd "$word"
    previous=$word
done
exec conmon "$@"
"""


class Podman(Launched):
    """An engine whose containers are gone when it is stopped. It has one image, `IMAGE`, with nothing in it.

    No image can be pulled here: containers get the programs of this machine, read-only, through `binds`. What a build
    starts from is in `servers.docker`.
    """

    name = "podman"

    def __init__(self, folder: Path, *, driver: str = "vfs") -> None:
        super().__init__(folder)
        self._driver = driver

    def command(self) -> Sequence[str]:
        if os.geteuid() != 0:
            raise Missing("podman runs the containers of the tests as root only: run them as root")
        on_path("runc", "runc")
        on_path("catatonit", "catatonit")
        program = on_path("podman", "podman")
        self._configure()
        self._import_empty_image()
        return [program, "system", "service", "--time", "0", self.url]

    def environ(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0

    def stop(self) -> None:
        """Remove its containers, whatever they do, and end it."""
        if (self.folder / "data").exists():
            self._run(on_path("podman", "podman"), "rm", "--all", "--force", "--time", "0")
        super().stop()

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def _socket(self) -> Path:
        return self.folder / "podman.sock"

    @staticmethod
    def binds(*more: Path) -> tuple[str, ...]:
        """This machine's programs, the interpreter, its virtualenv and the checkout, each in its own place."""
        ours = [sys.base_prefix, sys.prefix, str(CHECKOUT), *map(str, more)]
        places = [place for place in SYSTEM if Path(place).exists()]
        places += [place for place in dict.fromkeys(ours) if not place.startswith("/usr/")]
        return tuple(f"{place}:{place}:ro" for place in places)

    def _configure(self) -> None:
        (self.folder / "containers.conf").write_text(_CONTAINERS.format(folder=self.folder))
        (self.folder / "storage.conf").write_text(_STORAGE.format(folder=self.folder, driver=self._driver))
        conmon = self.folder / "conmon"
        conmon.write_text(_CONMON)
        conmon.chmod(0o755)

    def import_image(self, layer: Path, name: str) -> None:
        """Have an image of one layer, a tar file."""
        self._run(on_path("podman", "podman"), "import", str(layer), name)

    def _import_empty_image(self) -> None:
        layer = self.folder / "image.tar"
        with tarfile.open(layer, "w") as tar:
            for folder in ("tmp", "run", "var/tmp"):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
                tar.addfile(entry, io.BytesIO())
        self.import_image(layer, IMAGE)

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=dict(self.environ()), check=True, capture_output=True, timeout=60)


def layered_driver(folder: Path) -> str:
    """The storage driver that shares layers where the folder's filesystem can; else the one that copies them."""
    layers = [folder / name for name in ("lower", "upper", "work", "merged")]
    for layer in layers:
        layer.mkdir()
    lower, upper, work, merged = map(str, layers)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    try:
        mounted = subprocess.run(["/bin/mount", "-t", "overlay", "-o", options, "overlay", merged], capture_output=True)
        if mounted.returncode:
            return "vfs"
        subprocess.run(["/bin/umount", merged], check=True, capture_output=True)
        return "overlay"
    finally:
        for layer in layers:
            shutil.rmtree(layer)
