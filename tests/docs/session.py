"""A reader at work on a page: one scratch folder, one shell, one Python, and the services started on the way."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil
from msgspec import Struct

from tests.docs.guide import Block, Step
from tests.system.harness import ROOT, WITHIN, eventually

ADDRESS = "http://127.0.0.1:7373"
INTERPRETER = Path(__file__).with_name("interpreter.py")
_SERVICE = re.compile(r"penstock (up|api|worker|scheduler|autoscaler|webhooks listen)\b")
_URL = re.compile(r"http://127\.0\.0\.1:\d+")
_READY = re.compile(r"ready|acts|listening")
_PRINTED = re.compile(r"print\(.*\)  # (?P<text>.*)$", re.MULTILINE)
_END = re.compile(r"<<ended with (\d+)>>\n")


class Answer(Struct, frozen=True):
    """How a command ended, and what it printed."""

    status: int
    printed: str
    complained: str


class Session:
    """Runs blocks. Everything it starts ends with it."""

    def __init__(self, scratch: Path, environ: Mapping[str, str], instead: Mapping[str, str]) -> None:
        self._scratch = scratch
        self._url = ADDRESS
        self._instead = dict(instead)
        self.unused = set(instead)
        """Replacements that no block has needed."""
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "PENSTOCK_SERVER_PORT": "0",
            **environ,
        }
        self._services = 0
        self._shell = self._start("bash")
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in filter(None, (self._shell, self._python)):
            for below in psutil.Process(process.pid).children(recursive=True):
                below.kill()
            process.kill()
            process.communicate(timeout=WITHIN)

    def run(self, block: Block) -> None:
        """Do what a block says, and compare what comes of it with what the page tells."""
        if block.file:
            self._write(block)
        elif block.language == "python":
            self._run_python(block.text, str(block))
        elif block.language == "sql":
            self._run_sql(block.text, str(block))
        else:
            for step in block.steps:
                self._run_step(step, str(block))

    def prepare(self, source: str) -> None:
        """Run Python that the page takes for granted."""
        self._run_python(source, "the preamble of the scene")

    def serve(self, command: str) -> None:
        """Start a service, such as `penstock up`, and wait until it is ready. A server is the one asked from now on."""
        self._services += 1
        log = self._scratch / f"service-{self._services}.log"
        log.touch()
        self._ask_shell(f"{command} > {log.name} 2>&1 < /dev/null &")
        is_server = command.startswith(("penstock up", "penstock api"))
        ready = eventually(f"{command} is ready", lambda: (_URL if is_server else _READY).search(log.read_text()))
        if is_server:
            self._url = self._environ["PENSTOCK_URL"] = ready[0]
            self._ask_shell(f"export PENSTOCK_URL={self._url} PENSTOCK_WORKER_URL={self._url}")

    # -- its kinds of blocks

    def _write(self, block: Block) -> None:
        path = self._scratch / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._replaced(block.text))

    def _run_python(self, source: str, name: str) -> None:
        if self._python is None:
            self._python = self._start(sys.executable, str(INTERPRETER))
        stdin, stdout = _pipes(self._python)
        stdin.write(json.dumps({"source": self._replaced(source), "name": name}) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        assert not answer["error"], f"{name}: {answer['error']}"
        if told := _PRINTED.findall(source):
            assert answer["printed"].splitlines() == told, name

    def _run_sql(self, statements: str, name: str) -> None:
        """With psql, which must be on the PATH and be told in its environment where the database is."""
        (self._scratch / "block.sql").write_text(self._replaced(statements))
        answer = self._ask_shell("psql -X -q -v ON_ERROR_STOP=1 -f block.sql")
        assert answer.status == 0, f"{name}: {answer.complained}"

    def _run_step(self, step: Step, name: str) -> None:
        command = self._replaced(step.command)
        if _SERVICE.match(command):
            self.serve(re.sub(r"\s+#.*", "", command))
            return
        answer = self._ask_shell(command)
        assert answer.status == 0, f"{name}: {command}\nended with {answer.status}: {answer.complained}"
        if told := self._replaced(step.told.strip()):
            pattern = ".*".join(map(re.escape, told.split("…")))
            assert re.fullmatch(pattern, answer.printed.strip(), re.DOTALL), f"{name}: {command}\n{answer.printed}"

    # -- what they run in

    def _start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv, cwd=self._scratch, env=self._environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _ask_shell(self, command: str) -> Answer:
        """Run it in the shell itself, so that what it sets is there for the commands after it."""
        complaints = self._scratch / "stderr.txt"
        stdin, stdout = _pipes(self._shell)
        stdin.write(f'{{\n{command}\n}} < /dev/null 2> {complaints}; echo "<<ended with $?>>"\n')
        stdin.flush()
        printed = ""
        while (end := _END.search(printed)) is None:
            line = stdout.readline()
            assert line, f"the shell ended: {command}"
            printed += line
        return Answer(int(end[1]), printed[: end.start()], complaints.read_text())

    def _replaced(self, text: str) -> str:
        for old, new in self._instead.items():
            if old in text:
                self.unused.discard(old)
                text = text.replace(old, new)
        return text.replace(ADDRESS, self._url)


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
