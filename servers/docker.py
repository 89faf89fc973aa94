"""The `docker` command on an engine of Podman's: what is written for Docker can be run here, builds included."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from servers.base_image import write_base_image
from servers.launch import on_path
from servers.podman import Podman

BASE = "localhost/penstock-test:base"
INDEX_OPTIONS = frozenset({"index-url", "extra-index-url", "find-links", "cert", "trusted-host"})

_COMMAND = """\
#!/bin/sh
export CONTAINERS_CONF='{conf}' CONTAINERS_STORAGE_CONF='{storage}'
[ "$1" = build ] || exec '{podman}' "$@"
shift
exec '{podman}' build --quiet --layers=false --build-arg BASE={base} {mounts} "$@"
"""


def install_docker(engine: Podman, folder: Path) -> None:
    """Write `docker` into the folder. Its builds start from `BASE`, given as the build argument of that name, and see
    the package indexes of this machine, which are not part of what they build."""
    folder.mkdir()
    layer = folder / "base.tar"
    write_base_image(layer)
    engine.import_image(layer, BASE)
    layer.unlink()
    command = folder / "docker"
    environ = engine.environ()
    command.write_text(
        _COMMAND.format(
            conf=environ["CONTAINERS_CONF"],
            storage=environ["CONTAINERS_STORAGE_CONF"],
            podman=on_path("podman", "podman"),
            base=BASE,
            mounts=" ".join(f"--volume '{mount}'" for mount in _mounts(folder)),
        )
    )
    command.chmod(0o755)


def _mounts(folder: Path) -> Iterator[str]:
    """pip's configuration, and the local indexes that it names."""
    options = _pip_options()
    conf = folder / "pip.conf"
    conf.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in options.items())]) + "\n")
    yield f"{conf}:/etc/pip.conf:ro"
    for place in {_local(word) for value in options.values() for word in value.split()}:
        if place is not None and place.exists():
            yield f"{place}:{place}:ro"


def _pip_options() -> dict[str, str]:
    """How pip finds packages on this machine, from its files and its environment."""
    asked = [str(Path(sys.base_prefix, "bin", "python3")), "-m", "pip", "config", "list"]
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    pairs = (line.partition("=") for line in told.splitlines())
    named = {name.rpartition(".")[2]: str(ast.literal_eval(value)) for name, _, value in pairs}
    return {name: value for name, value in named.items() if name in INDEX_OPTIONS}


def _local(word: str) -> Path | None:
    """The folder or file that an option names; an index's pages refer to files beside it."""
    if word.startswith("file://"):
        return Path(word.removeprefix("file://")).parent
    return Path(word) if word.startswith("/") else None
