"""The client for asyncio is the one that tools/twin.py writes from the blocking one."""

import pytest

from tools.twin import ASYNC, BLOCKING, async_text


def test_the_async_client_is_what_the_blocking_one_becomes() -> None:
    """If not: change client.py, not aio.py, and run `python tools/twin.py`."""
    assert async_text(BLOCKING.read_text("utf-8")) == ASYNC.read_text("utf-8")


def test_an_edit_that_no_longer_applies_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"found 0 times: 'import time\\n'"):
        async_text(BLOCKING.read_text("utf-8").replace("import time\n", ""))
