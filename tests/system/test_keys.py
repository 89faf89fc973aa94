"""API keys with real processes: nobody gets in without, everybody needed gets in with, and secrets stay secret."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.model.errors import Forbidden, Unauthorized
from tests.system.harness import APP, ROOT, WITHIN, Process, Server, ending, eventually

EVERYWHERE = "0.0.0.0"  # noqa: S104 - with keys, on a free port, for seconds
QUICK = {"PENSTOCK_TIMING_LEASE_SECONDS": "2", "PENSTOCK_TIMING_HEARTBEAT_SECONDS": "0.5"}
TALKATIVE = {"PENSTOCK_LOG_LEVEL": "debug"}

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_key_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a key, and it is nobody's business here."""
    for name in ("PENSTOCK_KEY", "PENSTOCK_URL"):
        monkeypatch.delenv(name, raising=False)


def penstock(*words: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
        check=False,
    )


def first_key(data: Path) -> str:
    """An admin's key, made in the store before there is a server."""
    made = penstock("keys", "create", "--name", "ops", "--scope", "admin", "--direct", "--data", str(data))
    assert made.returncode == 0, made.stderr
    (key,) = made.stdout.splitlines()
    return key


def everything_in(folder: Path) -> Iterator[bytes]:
    return (file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_without_an_admin_key_no_other_address_is_even_bound(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = penstock("up", "--host", EVERYWHERE, "--port", port, "--data", str(tmp_path / "data"))
    assert refused.returncode == 1
    assert refused.stderr.startswith("penstock: server.host: '0.0.0.0' is not a loopback address")
    assert "penstock keys create --name ops --scope admin --direct" in refused.stderr


def test_with_keys_a_server_listens_to_everyone_and_serves_who_shows_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    admin = first_key(data)
    server = Server(data, "--host", EVERYWHERE, environ=TALKATIVE)
    url = f"http://127.0.0.1:{server.port}"
    with ending(server):
        with Client(url, patience=0) as nobody, pytest.raises(Unauthorized):
            nobody.submit("mark", {"n": 1})
        with Client(url, key=admin, patience=0) as ops:
            # The worker beside the server has a key of its own.
            assert ops.wait(ops.submit("mark", {"n": 7}).id, timeout=WITHIN).result == 7
            # So have its handlers, and they find the server that runs them.
            assert ops.wait(ops.submit("parent", {"n": 8}).id, timeout=WITHIN).result == 8
            shop = ops.create_key("shop", ["jobs:read"])
        with Client(url, key=shop.key, patience=0) as reader:
            assert {one.type for one in reader.list()} == {"mark", "parent"}
            with pytest.raises(Forbidden, match="jobs:write"):
                reader.submit("mark", {"n": 2})
        told = penstock("keys", "revoke", shop.id, environ={"PENSTOCK_URL": url, "PENSTOCK_KEY": admin})
        assert told.returncode == 0, told.stderr
        with Client(url, key=shop.key, patience=0) as gone, pytest.raises(Unauthorized):
            next(gone.list())
        assert server.stop() == 0
    for key in (admin, shop.key):
        secret = key[12:]
        assert not any(secret.encode() in content for content in everything_in(tmp_path))
        assert secret not in "".join(server.lines)
    assert any("/v1/jobs" in line for line in server.lines), "the log was not as talkative as this test needs it"


def test_workers_schedulers_and_the_command_line_show_their_keys(tmp_path: Path) -> None:
    data = tmp_path / "data"
    admin = first_key(data)
    environ = {**QUICK, "PENSTOCK_SERVER_KEYS": "required"}
    server = Server(data, "--no-workers", "--no-scheduler", app=None, environ=environ)
    with ending(server), Client(server.url, key=admin) as ops:
        keys = {scope: ops.create_key(scope, [scope]) for scope in ("worker", "scheduler")}
        stranger = penstock("worker", APP, "--url", server.url, "--executors", "1")
        assert stranger.returncode == 1
        assert "PENSTOCK_KEY" in stranger.stderr
        worker = Process(
            "worker", APP, "--url", server.url, folder=tmp_path, environ={"PENSTOCK_KEY": keys["worker"].key}
        )
        scheduler = Process(
            "scheduler", "--url", server.url, folder=tmp_path, environ={"PENSTOCK_KEY": keys["scheduler"].key}
        )
        with ending(worker, scheduler):
            worker.says("ready")
            ops.schedule("often", "mark", {"n": 1}, interval=1)
            eventually("a tick was run", lambda: [one for one in ops.list() if one.state == "succeeded"])
            refused = ops.wait(ops.submit("parent", {"n": 1}).id, timeout=WITHIN).error
            assert refused is not None
            assert "jobs:write" in refused.message
            assert "it is the worker's key: give that the scope too" in refused.message
            listed = penstock("jobs", "list", "--url", server.url, environ={"PENSTOCK_KEY": admin})
            assert "mark" in listed.stdout
            ops.revoke_key(keys["worker"].id)
            worker.says("revoked")


def test_a_revocation_that_missed_a_shard_warns_until_it_has_reached_it(tmp_path: Path) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        folder.mkdir()
    shards = ",".join(f"{number}=sqlite://{folder}/jobs.db" for number, folder in enumerate(folders))
    environ = {"PENSTOCK_STORE_SHARDS": shards, "PENSTOCK_SERVER_DATA": str(tmp_path)}
    made = penstock("keys", "create", "--name", "ci", "--scope", "jobs:read", "--direct", environ=environ)
    assert made.returncode == 0, made.stderr
    id = made.stdout.split("_")[1]
    away = folders[1].rename(tmp_path / "away")
    folders[1].write_text("no folder")
    told = penstock("keys", "revoke", id, "--direct", environ=environ)
    assert (told.returncode, told.stdout) == (1, f"{id} is revoked\n")
    assert f"shard 1 could not be told that {id} is revoked" in told.stderr
    folders[1].unlink()
    away.rename(folders[1])
    again = penstock("keys", "revoke", id, "--direct", "--json", environ=environ)
    assert (again.returncode, again.stdout) == (0, f'{{"revoked":"{id}","unreached_shards":[]}}\n'), again.stderr
