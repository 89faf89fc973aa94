"""What `make cluster` says about faults of the servers, and what it leaves behind to look into."""

import random
import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from cluster import __main__ as command
from cluster import report
from cluster.board import Board
from cluster.caller import Answer
from cluster.checker import Verdict
from cluster.clients import Client, Supply
from cluster.mix import Kind, Wish, requests
from cluster.placement import Placement
from cluster.run import Plan
from cluster.sdk_clients import SdkClient
from cluster.server_faults import ServerFault, server_faults
from penstock.model.errors import PenstockError, ServerUnavailable

LOG = """\
Penstock API at http://127.0.0.1:1  (Ctrl-C to stop)
2030-01-01 00:02:12 broker    warning: the server is gone; trying again
2030-01-01 00:02:13 api       error: POST /v1/jobs failed  request=8715cd3e
Traceback (most recent call last):
  File "app.py", line 191, in __call__
RuntimeError: the handler is closed
2030-01-01 00:02:14 broker    listening again
"""
FAULT = (
    "2030-01-01 00:02:13 api       error: POST /v1/jobs failed  request=8715cd3e",
    "Traceback (most recent call last):",
    '  File "app.py", line 191, in __call__',
    "RuntimeError: the handler is closed",
)
WELL = Verdict(acknowledged=1, finished_once=1, interrupted=0, findings=())
PLACED = Placement(requests=1, on_the_way=0, failed=0, share=None, fair=None, drained=0)


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "ledger.jsonl", 1)


@pytest.fixture
def supply(board: Board) -> Supply:
    return Supply(board, 1, 1.0, requests(random.Random(1)))


def test_an_error_is_found_with_its_traceback_and_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_text(LOG)
    assert server_faults([log]) == [ServerFault(log, FAULT)]


def test_a_fault_in_a_log_is_printed_whole_and_breaks_the_run() -> None:
    fault = ServerFault(Path("api0/api0.log"), FAULT)
    said = "\n".join(report.lines(WELL, PLACED, (), (), 0, [fault]))
    assert all(line in said for line in ("api0/api0.log", *FAULT))
    assert report.good(WELL, PLACED, (), ())
    assert not report.good(WELL, PLACED, (), [fault])


def test_a_500_is_reported_by_a_client_that_repeats_it(tmp_path: Path, board: Board, supply: Supply) -> None:
    answers = [Answer(503, "down"), Answer(500, "a fault")]

    class Told(Client):
        def _call(self, *_: object) -> Answer:
            return answers.pop(0)

        def submit_twice(self) -> None:
            with closing(self.history):
                self._submit((Wish(7, Kind.QUICK),))
                self._submit((Wish(7, Kind.QUICK),))

    Told("client1", 1, supply, board, tmp_path).submit_twice()
    assert board.refused == ["submit of order 7 was answered 500: a fault"]


@pytest.mark.parametrize(
    "error",
    [
        PenstockError("a fault", status=500),
        ServerUnavailable("answered by something else than Penstock", status=500),
    ],
)
def test_a_500_is_reported_by_a_client_of_the_sdk(
    tmp_path: Path, board: Board, supply: Supply, error: PenstockError
) -> None:
    class Failing(SdkClient):
        def _send(self, *_: object) -> list[dict[str, object]]:
            raise error

        def submit_once(self) -> None:
            with closing(self.history):
                self._submit((Wish(7, Kind.QUICK),))

    Failing("client2", 1, supply, board, tmp_path).submit_once()
    assert board.refused == [f"SDK submit of order 7 was answered 500, {error.code}: {error.message}"]


@pytest.mark.parametrize(("status", "kept"), [(0, False), (1, True), (2, False)])
def test_the_folder_of_a_run_is_kept_if_a_promise_was_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int, *, kept: bool
) -> None:
    def run(folder: Path, _: Plan) -> int:
        (folder / "api.log").write_text(LOG)
        return status

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["cluster"])
    monkeypatch.setattr(command, "_run", run)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert command.main() == status
    assert [one.name for one in tmp_path.rglob("api.log")] == (["api.log"] if kept else [])
    assert (str(tmp_path) in capsys.readouterr().out) is kept
