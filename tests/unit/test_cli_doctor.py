"""The doctor: what it finds, and what it says to do about it."""

import fcntl
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.cli.connection import fetch
from penstock.cli.doctor.backends import examine_fleets
from penstock.cli.doctor.findings import Finding, FindingStatus
from penstock.cli.doctor.machine import examine_folder, examine_machine
from penstock.cli.doctor.server import examine_port, examine_server
from penstock.config import FleetSettings, ServerSettings, Settings, WorkerSettings
from penstock.model import extras
from penstock.model.errors import ServerUnavailable


class ClockSetTo:
    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, span: object) -> None: ...


@contextmanager
def listening() -> Iterator[int]:
    """A port that somebody else has, and never answers on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def found(findings: list[Finding], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def test_a_folder_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    findings = list(examine_folder(tmp_path / "a" / "b"))
    assert {finding.status for finding in findings} == {FindingStatus.OK}
    assert "made at the first start" in found(findings, "data folder").found
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_folders_place_fails(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    (finding,) = [finding for finding in examine_folder(tmp_path / "data") if finding.status is FindingStatus.FAIL]
    assert finding.remedy == "choose another with --data"


def test_a_folder_open_to_others_is_warned_about(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert found(list(examine_folder(tmp_path)), "data folder").status is FindingStatus.WARN


def test_the_owner_of_a_locked_folder_is_named(tmp_path: Path) -> None:
    with (tmp_path / "penstock.db.lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert found(list(examine_folder(tmp_path)), "data lock").found == "held by process 4711"
    assert found(list(examine_folder(tmp_path)), "data lock").found == "free"


def test_a_clock_from_before_this_version_is_warned_about() -> None:
    findings = list(examine_machine(ClockSetTo(datetime(1970, 1, 2, tzinfo=UTC))))
    assert found(findings, "clock").status is FindingStatus.WARN


def test_a_port_that_is_taken_fails() -> None:
    with listening() as port:
        assert examine_port(ServerSettings(port=port)).status is FindingStatus.FAIL


def test_a_port_that_is_free_is_fine() -> None:
    with listening() as port:
        pass
    assert examine_port(ServerSettings(port=port)).status is FindingStatus.OK


async def test_an_absent_server_is_a_warning_with_how_to_start_one() -> None:
    with listening() as port:
        pass
    settings = Settings(server=ServerSettings(port=port), worker=WorkerSettings(url=f"http://127.0.0.1:{port}"))
    absent, free = await examine_server(settings)
    assert (absent.status, free.status) == (FindingStatus.WARN, FindingStatus.OK)
    assert "penstock up" in absent.remedy


async def examined(**fleet: str) -> Finding:
    (finding,) = await examine_fleets(Settings(fleet=FleetSettings(**fleet)))  # type: ignore[arg-type]
    return finding


async def test_a_container_engine_that_is_not_there_fails_and_names_where_it_was_looked_for(tmp_path: Path) -> None:
    finding = await examined(backend="containers", engine=f"unix://{tmp_path}/docker.sock")
    assert (finding.name, finding.status) == ("fleets", FindingStatus.FAIL)
    assert f"no container engine answers at unix://{tmp_path}/docker.sock" in finding.found
    assert "fleet.engine" in finding.remedy


async def test_a_client_library_that_is_not_installed_fails_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "LIBRARIES", {**extras.LIBRARIES, "containers": "no_such_library"})
    finding = await examined(backend="containers")
    assert (finding.status, finding.found) == (FindingStatus.FAIL, "no_such_library is not installed")
    assert "[containers]" in finding.remedy


async def test_a_cluster_without_credentials_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    finding = await examined(backend="kubernetes")
    assert (finding.name, finding.status) == ("fleets", FindingStatus.FAIL)


async def test_fleets_of_processes_need_nothing_more() -> None:
    assert await examine_fleets(Settings()) == []


async def test_what_never_answers_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.connection.PATIENCE", timedelta(milliseconds=50))
    with listening() as port, pytest.raises(ServerUnavailable, match="within"):
        await fetch(f"http://127.0.0.1:{port}", "/healthz")
