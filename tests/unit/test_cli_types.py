"""Job types on the command line: what is asked of the server, and how answers look."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result

from penstock.cli import ROOT
from penstock.model.lifecycle import State
from penstock.model.wire.types import RetiredType, TypeItem

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MAIL = TypeItem(name="mail", queue="mail", declared_at=NOON, signature="abc", aliases=("letter",))


class Server:
    """Has so many jobs of each type that wait; cancels two at a time."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.asked: list[tuple[str, ...]] = []

    def types(self) -> tuple[TypeItem, ...]:
        return (MAIL,)

    def alias_type(self, name: str, run_as: str) -> TypeItem:
        self.asked.append((name, run_as))
        return MAIL

    def remove_type_alias(self, name: str) -> None:
        self.asked.append((name,))

    def retire_type(self, name: str, *, cancel: bool = False) -> RetiredType:
        cancelled = min(2, self.waiting) if cancel else 0
        self.waiting -= cancelled
        return RetiredType(name, {State.QUEUED: self.waiting} if self.waiting else {}, cancelled)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(waiting=5)

    @contextmanager
    def connect(*_: object) -> Iterator[Server]:
        yield server

    monkeypatch.setattr("penstock.cli.connection.connect", connect)
    return server


def run(*words: str) -> Result:
    return CliRunner().invoke(ROOT, ["types", *words])


def test_types_are_listed_with_the_names_they_had(server: Server) -> None:
    assert "runs letter too" in run().output


def test_a_type_is_renamed_and_named_back(server: Server) -> None:
    assert "letter is run as mail" in run("alias", "letter", "mail").output
    assert "as itself again" in run("alias", "letter", "--remove").output
    assert server.asked == [("letter", "mail"), ("letter",)]


@pytest.mark.parametrize("words", [("letter",), ("letter", "mail", "--remove")])
def test_an_alias_needs_either_a_new_name_or_to_be_removed(server: Server, words: tuple[str, ...]) -> None:
    assert run("alias", *words).exit_code != 0
    assert server.asked == []


def test_a_type_that_is_retired_tells_what_is_left_and_how_to_be_rid_of_it(server: Server) -> None:
    told = run("retire", "mail").output
    assert "jobs left: 5 queued" in told
    assert "--cancel" in told


def test_everything_that_waits_is_cancelled_if_asked_for(server: Server) -> None:
    assert "jobs left: none; cancelled: 5" in run("retire", "mail", "--cancel").output
