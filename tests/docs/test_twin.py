"""The client for asyncio is the one that tools/twin.py writes from the blocking one."""

from pathlib import Path

import pytest

from tools.twin import TWINS, Twin, async_text


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.blocking.name)
def test_the_async_client_is_what_the_blocking_one_becomes(twin: Twin) -> None:
    """If not: change the blocking file, not the one for asyncio, and run `python tools/twin.py`."""
    assert async_text(twin) == twin.asynchronous.read_text("utf-8")


def test_an_edit_that_no_longer_applies_is_an_error(tmp_path: Path) -> None:
    client, *_ = TWINS
    changed = tmp_path / "client.py"
    changed.write_text(client.blocking.read_text("utf-8").replace("import time\n", ""), "utf-8")
    with pytest.raises(ValueError, match=r"found 0 times: 'import time\\n'"):
        async_text(client._replace(blocking=changed))
