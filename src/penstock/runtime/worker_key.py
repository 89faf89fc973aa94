"""The key that the workers beside a server show to it, kept for as long as they may need it."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger("penstock.server")

FILE = "local_workers.key"


@contextmanager
def kept_token(folder: Path, lend: Callable[[str | None], str]) -> Iterator[str]:
    """A key for the workers of this server: that of its last life, if that did not come to an orderly end.

    Workers outlive a server that is killed until their jobs have ended: the next one must know them, to renew their
    leases and to take their results. After the body they have ended, and the key is forgotten. Only the owner of the
    folder can read it, who can read all jobs too.
    """
    path = folder / FILE
    token = lend(_read(path))
    try:
        _write(path, token)
    except OSError as error:
        logger.warning("%s cannot be written (%s): workers that outlive this server will be lost", path, error.strerror)
    try:
        yield token
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text("ascii").strip()
    return None


def _write(path: Path, token: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, token.encode("ascii"))
    finally:
        os.close(file)
