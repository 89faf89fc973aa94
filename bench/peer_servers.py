"""The servers that peers need, on loopback at free ports: started when a chosen peer needs one, ended with the run."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from environments import Unavailable, virtualenv
from places import Places
from processes import Account, StepFailed, child, output_of

READY_SECONDS = 120.0
_POSTGRES_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "100",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
}


@contextlib.contextmanager
def started(name: str, places: Places) -> Iterator[Places]:
    """The named server (`postgres` or `valkey`), empty and ready; yields places that tell its address."""
    with {"postgres": _postgres, "valkey": _valkey}[name](places) as address:
        yield replace(places, addresses={**places.addresses, **address})


@contextlib.contextmanager
def own(command: list[str], name: str, places: Places) -> Iterator[Places]:
    """A peer's own server on an empty data folder, started by the adapter's command `server`."""
    port = _free_port()
    data = places.data / name
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    address = {"BENCH_PORT": str(port), "BENCH_SERVER_DATA": str(data)}
    there = replace(places, addresses={**places.addresses, **address})
    log = places.logs / f"{name}-server.log"
    with child([*command, "server"], env=there.environ(), log=log, cwd=there.source) as process:
        _await_port(process, port, log)
        yield there


@contextlib.contextmanager
def _valkey(places: Places) -> Iterator[dict[str, str]]:
    """Without persistence: nothing survives a crash of the server."""
    server = _find(virtualenv("valkey", places), "valkey-server")
    port, log = _free_port(), places.logs / "valkey.log"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with child([str(server), *options], env=dict(os.environ), log=log, cwd=places.data) as process:
        _await_port(process, port, log)
        yield {"BENCH_REDIS_URL": f"redis://127.0.0.1:{port}/0"}


@contextlib.contextmanager
def _postgres(places: Places) -> Iterator[dict[str, str]]:
    """PostgreSQL as shipped but for the settings above; every commit is flushed."""
    programs = _find(virtualenv("postgres", places), "pginstall18/bin/postgres").parent
    account = _unprivileged()
    data, port, log = places.home / "postgres", _free_port(), places.logs / "postgres.log"
    _make_cluster(programs, data, account, log)
    settings = [word for name, value in _POSTGRES_SETTINGS.items() for word in ("-c", f"{name}={value}")]
    command = [str(programs / "postgres"), "-D", str(data), "-p", str(port), *settings]
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for its clients.
    fast = signal.SIGINT
    with child(command, env=dict(os.environ), log=log, cwd=data, account=account, stop_signal=fast) as process:
        _await_port(process, port, log)
        _await_postgres(programs, port, places)
        yield {"BENCH_PG_URL": f"postgresql://bench@127.0.0.1:{port}/bench"}
    shutil.rmtree(data, ignore_errors=True)


def _make_cluster(programs: Path, data: Path, account: Account | None, log: Path) -> None:
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    if account:
        os.chown(data, account.uid, account.gid)
    command = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C"]
    try:
        with child(command, env=dict(os.environ), log=log, cwd=data, account=account) as process:
            code = process.wait(READY_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise Unavailable(f"initdb did not run ({failure}): its user must be able to reach BENCH_HOME") from failure
    if code:
        raise Unavailable(f"initdb failed: see {log}")


def _await_postgres(programs: Path, port: int, places: Places) -> None:
    """The port opens before recovery ends, so the server itself is asked."""
    command = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            output_of(command, env=dict(os.environ), log=places.logs / "pg_isready.log", timeout=10, cwd=places.home)
        except StepFailed as failure:
            if time.monotonic() > deadline:
                raise Unavailable("PostgreSQL did not become ready") from failure
            time.sleep(0.1)
        else:
            return


def _unprivileged() -> Account | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def _find(folder: Path, ending: str) -> Path:
    found = sorted(folder.glob(f"lib/python3*/site-packages/**/{ending}"))
    if not found:
        raise Unavailable(f"no {ending} in {folder} for this platform")
    return found[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise Unavailable(f"the server did not open its port: see {log}")
