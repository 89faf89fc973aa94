"""One process owns a database file: a lock beside it that the system drops when the process ends, however it ends."""

import fcntl
import os
from pathlib import Path
from typing import Self

from penstock.model.errors import StoreUnavailable


class LockFile:
    """An exclusive lock, held until `release`. The file stays behind, with the last owner's process id in it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, database: Path) -> Self:
        """The lock of a database; StoreUnavailable, naming the owner, when another holds it."""
        path = database.with_name(database.name + ".lock")
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            # flock, not lockf: the latter would let this same process in twice.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode().strip()
            os.close(descriptor)
            raise StoreUnavailable(
                f"{database} is open in process {owner}: stop it or choose another --data folder"
            ) from None
        _write_owner(descriptor)
        return cls(descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def _write_owner(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
