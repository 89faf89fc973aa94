"""One process owns a database file: a lock beside it that the system drops when the process ends, however it ends."""

import fcntl
import os
from pathlib import Path
from typing import IO, Self

from penstock.model.errors import StoreUnavailable


class LockFile:
    """An exclusive lock, held until `release`. The file stays behind, with the last owner's process id in it."""

    def __init__(self, held: IO[str]) -> None:
        self._held = held

    @classmethod
    def acquire(cls, database: Path) -> Self:
        """The lock of a database; StoreUnavailable, naming the owner, when another holds it."""
        path = database.with_name(database.name + ".lock")
        held = os.fdopen(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+")
        try:
            # flock, not lockf: the latter would let this same process in twice.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with held:
                owner = held.read().strip()
            raise StoreUnavailable(
                f"{database} is open in process {owner}: stop it or choose another --data folder"
            ) from None
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        return cls(held)

    def release(self) -> None:
        self._held.close()
