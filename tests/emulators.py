"""Emulators of AWS for tests, each started with the first test that needs it, and the environment that leads to one."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from servers import Dynoxide, Ministack, Missing, Moto, aws_environ
from servers.emulators import Emulator

E = TypeVar("E", bound=Emulator)


@cache
def dynoxide() -> Dynoxide:
    """The one DynamoDB of this test process; tests have tables of their own in it."""
    return _start(Dynoxide(_new_folder("dynoxide")))


@cache
def ministack() -> Ministack:
    """The one ministack of this test process, without containers."""
    return _start(Ministack(_new_folder("ministack")))


@cache
def moto() -> Moto:
    return _start(Moto(_new_folder("moto")))


def use_emulator(patch: pytest.MonkeyPatch, server: Emulator) -> None:
    """Let clients that are opened from now on reach only this server, whatever account the machine knows."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    for name, value in aws_environ(server.endpoint).items():
        patch.setenv(name, value)


def _new_folder(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _start(server: E) -> E:
    """Missing: a failure under CI, else the test is skipped."""
    try:
        server.start()
    except Missing as missing:
        if "CI" in os.environ:
            raise
        pytest.skip(str(missing))
    atexit.register(server.stop)
    return server
