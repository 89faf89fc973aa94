"""PgBouncer in transaction mode before a PostgreSQL."""

import pwd
from collections.abc import Sequence
from pathlib import Path

from servers.launch import Launched, on_path, unprivileged
from servers.postgres import Postgres


class PgBouncer(Launched):
    """Every transaction may run on another connection."""

    name = "pgbouncer"

    def __init__(self, folder: Path, behind: Postgres, port: int = 0) -> None:
        super().__init__(folder, port)
        self._behind = behind

    def account(self) -> pwd.struct_passwd | None:
        return unprivileged()

    def command(self) -> Sequence[str]:
        file = self.folder / "pgbouncer.ini"
        file.write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={self._behind.port} user=penstock\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 20\n"
            "ignore_startup_parameters = extra_float_digits,options\n"
        )
        return [on_path("pgbouncer", "pgbouncer"), str(file)]

    def url(self, database: str) -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/{database}"
