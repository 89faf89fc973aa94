"""Real servers in tests: where they keep their data, and what it means that one is not installed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servers import Missing


@contextmanager
def real_servers() -> Iterator[Path]:
    """Around whatever starts servers: a folder for them. A missing one is a failure under CI, and a skip elsewhere.

    Not pytest's own folder: every session that starts closes that to other accounts, and PostgreSQL has one of its own.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-servers-"))
    try:
        yield folder
    except Missing as missing:
        if "CI" in os.environ:
            raise
        pytest.skip(str(missing))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
