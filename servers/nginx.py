"""nginx with the configuration that is shipped in `deploy/`, at other ports."""

import re
from collections.abc import Sequence
from pathlib import Path

from servers.launch import Launched, on_path

SHIPPED = Path(__file__).resolve().parents[1] / "deploy" / "nginx" / "penstock.conf"

# One process, so that it ends with the process that started it: workers of a killed master would stay behind.
_AROUND = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/penstock.conf;
}}
"""
_BEHIND = re.compile(r"(?:^ +server \S+:\d+(?P<terms>[^;]*);\n)+", re.MULTILINE)
_LISTEN = re.compile(r"^( +listen) \d+;$", re.MULTILINE)


class Nginx(Launched):
    """Before the APIs at these ports of loopback."""

    name = "nginx"

    def __init__(self, folder: Path, behind: Sequence[int], port: int = 0) -> None:
        super().__init__(folder, port)
        self._behind = behind

    def command(self) -> Sequence[str]:
        (self.folder / "penstock.conf").write_text(rendered(SHIPPED.read_text(), self.port, self._behind))
        (self.folder / "nginx.conf").write_text(_AROUND.format(folder=self.folder))
        program = on_path("nginx", "nginx-light")
        return [
            program,
            "-p",
            str(self.folder),
            "-c",
            str(self.folder / "nginx.conf"),
            "-e",
            str(self.folder / "error.log"),
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def rendered(shipped: str, port: int, behind: Sequence[int]) -> str:
    """The shipped configuration with these ports and nothing else changed; ValueError if it has no place for them."""

    def apis(found: re.Match[str]) -> str:
        return "".join(f"    server 127.0.0.1:{one}{found['terms']};\n" for one in behind)

    text, upstreams = _BEHIND.subn(apis, shipped)
    text, listens = _LISTEN.subn(rf"\1 127.0.0.1:{port};", text)
    if (upstreams, listens) != (1, 1):
        raise ValueError(f"expected one list of servers and one `listen`, found {upstreams} and {listens}")
    return text
