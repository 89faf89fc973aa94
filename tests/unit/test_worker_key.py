"""The key of the workers beside a server: known to the next life of a server that was killed."""

import stat
from pathlib import Path

from penstock.runtime.guard import FILE, keep_token


class Lender:
    """Remembers which key it was asked for again."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def __call__(self, token: str | None) -> str:
        self.asked.append(token)
        return token or f"pk_{len(self.asked)}"


def test_a_server_that_was_killed_leaves_the_key_to_the_next_one(tmp_path: Path) -> None:
    lend = Lender()
    with keep_token(tmp_path, lend) as token:
        (tmp_path / FILE).rename(tmp_path / "left behind")
    (tmp_path / "left behind").rename(tmp_path / FILE)
    with keep_token(tmp_path, lend) as again:
        assert again == token
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_an_orderly_end_leaves_nothing_behind(tmp_path: Path) -> None:
    lend = Lender()
    with keep_token(tmp_path, lend):
        pass
    assert list(tmp_path.iterdir()) == []
    with keep_token(tmp_path, lend):
        assert lend.asked == [None, None]


def test_a_folder_that_cannot_be_written_keeps_no_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with keep_token(tmp_path / "file", Lender()) as token:
        assert token == "pk_1"
