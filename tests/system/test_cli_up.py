"""The command line as a user has it: one server, and commands that talk to it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.harness import WITHIN, Process, Server, ending, eventually
from tests.watch import wait_in

pytestmark = pytest.mark.slow

APP = "shop:app"
SHOP = '''
import asyncio
import logging
from pathlib import Path

from penstock import Context, Penstock, Retry

app = Penstock()


@app.job
async def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    print("adding", a, b)
    return a + b


@app.job
async def greet(name: str) -> str:
    return f"hello {name}"


@app.job(retry=Retry.none())
async def err() -> None:
    raise ValueError("no such customer")


@app.job
async def wait_for_file(context: Context, path: str) -> str:
    context.progress(0.5, "half way")
    Path(path).with_suffix(".begun").touch()
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    return "found"


@app.job
def count(context: Context) -> int:
    size = len(context.inputs["text"].read_bytes())
    context.outputs.write("size.txt", str(size))
    return size
'''


GATED = """
import time
from pathlib import Path

from penstock import Penstock

while not Path({gate!r}).exists():
    time.sleep(0.01)

app = Penstock()

@app.job
{code}
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def status(port: int, path: str, body: object = None) -> int:
    """Of the answer; 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, {"content-type": "application/json"})
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with a module of job types in it."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    return folder


@pytest.fixture(scope="module")
def server(shop: Path) -> Iterator[Server]:
    running = Server(shop / "data", "--executors", "1", app=APP, environ={"PYTHONPATH": _path(shop)})
    with ending(running):
        yield running


def _path(folder: Path) -> str:
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


def penstock(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *words, "--url", server.url]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def answered(server: Server, *words: str) -> dict[str, object]:
    """The one JSON document that a command prints."""
    answer = penstock(server, *words, "--json")
    assert answer.returncode == 0, answer.stderr
    (line,) = answer.stdout.splitlines()
    document = json.loads(line)
    assert isinstance(document, dict)
    return document


def test_a_server_is_ready_once_it_knows_the_types_of_its_app_and_refuses_nothing_before(tmp_path: Path) -> None:
    """Also at a restart with new code, on data that knows the types of the old."""
    gate, port = tmp_path / "gate", free_port()
    first = "def first(a: int) -> int:\n    return a"
    second = "def first(a: int, b: int = 0) -> int:\n    return a\n\n@app.job\ndef second() -> None: ..."
    lives = [(first, {"type": "first", "params": {"a": 1}}), (second, {"type": "first", "params": {"a": 1, "b": 2}})]
    for code, body in lives:
        (tmp_path / "gated.py").write_text(GATED.format(gate=str(gate), code=code))
        gate.unlink(missing_ok=True)
        server = Process(
            "up", "gated:app", "--json", "--port", str(port), "--data", str(tmp_path / "data"),
            folder=tmp_path, environ={"PYTHONPATH": _path(tmp_path)},
        )  # fmt: skip
        with ending(server):
            eventually("it answers", lambda: status(port, "/healthz") == 200)
            assert status(port, "/readyz") == 503
            assert status(port, "/v1/jobs", body) == 503
            assert status(port, "/v1/jobs", {"type": "second"}) == 503
            gate.touch()
            server.first_line()
            assert status(port, "/readyz") == 200
            assert status(port, "/v1/jobs", body) == 201
            assert server.stop() == 0


def test_a_submit_that_waits_prints_the_result_alone_on_stdout(server: Server) -> None:
    answer = penstock(server, "jobs", "submit", "add", "a=1", "b=2", "--wait")
    assert (answer.returncode, answer.stdout) == (0, "3\n")
    assert answer.stderr.startswith("add succeeded in ")


def test_a_value_that_looks_like_a_number_is_text_where_text_is_wanted(server: Server) -> None:
    answer = penstock(server, "jobs", "submit", "greet", "name=5", "--wait")
    assert (answer.returncode, answer.stdout) == (0, '"hello 5"\n'), answer.stderr


def test_a_submit_prints_an_id_that_show_and_logs_and_retry_understand(server: Server) -> None:
    job = penstock(server, "jobs", "submit", "add", '{"a": 4}', "--tag", "four").stdout.strip()
    assert penstock(server, "jobs", "watch", job).returncode == 0
    shown = penstock(server, "jobs", "show", job).stdout
    assert "succeeded" in shown
    assert '{"a": 4}' in shown
    eventually("its line is kept", lambda: "adding 4 0" in penstock(server, "jobs", "logs", job).stdout)
    assert answered(server, "jobs", "retry", job)["retry_of"] == job


def test_a_job_that_fails_says_why_and_exits_1(server: Server) -> None:
    answer = penstock(server, "jobs", "submit", "err", "--wait")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "err failed" in answer.stderr
    assert "no such customer" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_running_job_is_watched_and_cancelled(server: Server, tmp_path: Path) -> None:
    submitted = answered(server, "jobs", "submit", "wait_for_file", f"path={tmp_path / 'never'}")
    job = str(submitted["id"])
    wait_in(tmp_path, (tmp_path / "never.begun").exists, WITHIN)
    answered(server, "jobs", "cancel", job)
    watched = penstock(server, "jobs", "watch", job, "--json")
    assert watched.returncode == 1
    assert json.loads(watched.stdout.splitlines()[-1])["state"] == "cancelled"


def test_files_go_in_and_come_out(server: Server, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("seventeen letters")
    words = ("jobs", "submit", "count", "--input", f"text={tmp_path / 'letter.txt'}", "--wait")
    job = str(answered(server, *words)["id"])
    assert penstock(server, "jobs", "output", job, "-o", "-").stdout == "17"
    written = answered(server, "jobs", "output", job, "size.txt", "-o", str(tmp_path))
    assert Path(str(written["path"])).read_text() == "17"
    absent = penstock(server, "jobs", "output", job, "other.txt")
    assert absent.returncode == 1
    assert "size.txt" in absent.stderr


def test_a_key_makes_a_submit_idempotent(server: Server) -> None:
    words = ("jobs", "submit", "add", "a=7", "--key", "seven")
    first = answered(server, *words)["id"]
    assert answered(server, *words)["id"] == first
    other = penstock(server, "jobs", "submit", "add", "a=8", "--key", "seven")
    assert other.returncode == 1
    assert str(first) in other.stderr


def test_jobs_are_listed_by_what_is_asked_for(server: Server) -> None:
    for number in range(3):
        penstock(server, "jobs", "submit", "add", f"a={number}", "--tag", "three", "--delay", "1h")
    found = answered(server, "jobs", "list", "--tag", "three", "--limit", "2")
    listed = found["jobs"]
    assert isinstance(listed, list)
    assert [job["state"] for job in listed] == ["scheduled"] * 2
    assert found["more"] is True


def test_a_paused_queue_says_so_until_it_is_resumed(server: Server) -> None:
    assert answered(server, "queues", "pause", "mail")["paused"] is True
    assert "paused" in penstock(server, "queues").stdout
    assert answered(server, "queues", "resume", "mail")["paused"] is False


def test_types_workers_and_doctor_know_what_is_up(server: Server) -> None:
    assert penstock(server, "jobs", "submit", "add", "a=1", "--wait").returncode == 0
    assert "add" in penstock(server, "types").stdout
    workers = answered(server, "workers")["workers"]
    assert isinstance(workers, list)
    assert [worker["state"] for worker in workers] == ["ready"]
    findings = answered(server, "doctor")["findings"]
    assert isinstance(findings, list)
    assert {"server", "ready", "workers", "disk flush"} <= {finding["name"] for finding in findings}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("submit", "ad", "a=1"), "add"),
        (("submit", "add", "a=x"), "int"),
        (("show", "0190a6e2-7c1f-7000-8a3e-1f6f2f3b9c55"), "there is no job"),
        (("show", "seventeen"), "is not a job id"),
    ],
)
def test_a_refusal_is_one_line_and_exit_code_1(server: Server, words: tuple[str, ...], expected: str) -> None:
    answer = penstock(server, "jobs", *words)
    assert answer.returncode == 1
    assert answer.stderr.startswith("penstock: ")
    assert expected in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_port_in_use_is_refused_with_what_to_do(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "up", "--port", str(server.port), "--data", str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"penstock: server.port: cannot listen on 127.0.0.1:{server.port}")
    assert "--port" in answer.stderr


def test_a_data_folder_in_use_is_refused_naming_its_owner(server: Server, shop: Path) -> None:
    command = [sys.executable, "-m", "penstock", "up", "--port", "0", "--data", str(shop / "data")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 1
    assert str(server.popen.pid) in answer.stderr
    assert "--data" in answer.stderr


@pytest.mark.parametrize("app", ["nowhere:app", "shop:nothing"])
def test_a_worker_without_its_app_exits_2(shop: Path, server: Server, app: str) -> None:
    worker = Process("worker", app, "--url", server.url, folder=shop, environ={"PYTHONPATH": _path(shop)})
    with ending(worker):
        assert worker.popen.wait(60) == 2
        worker.says("penstock:")


def test_ctrl_c_lets_running_jobs_finish_and_exits_0(shop: Path, tmp_path: Path) -> None:
    """A restart knows the job that ended while the server was stopping."""
    awaited = tmp_path / "awaited"
    own = Server(tmp_path / "data", "--executors", "1", app=APP, environ={"PYTHONPATH": _path(shop)})
    with ending(own):
        job = str(answered(own, "jobs", "submit", "wait_for_file", f"path={awaited}")["id"])
        wait_in(tmp_path, (tmp_path / "awaited.begun").exists, WITHIN)
        own.popen.send_signal(signal.SIGINT)
        own.says("draining")
        eventually("traffic is sent elsewhere", lambda: status(own.port, "/readyz") == 503)
        assert status(own.port, "/healthz") == 200
        awaited.touch()
        assert own.popen.wait(60) == 0
    again = Server(tmp_path / "data", app=None)
    with ending(again):
        assert answered(again, "jobs", "show", job)["result"] == "found"


def test_every_line_of_a_log_as_json_is_json_and_holds_no_params(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--log-format", "json", "--log-level", "debug")
    with ending(server):
        body = json.dumps({"type": "mark", "params": {"n": 77_123_456_789}})
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        asked = {"Content-Type": "application/json", "X-Request-Id": "web-7f3a"}
        connection.request("POST", "/v1/jobs", body, asked)
        answer = connection.getresponse()
        job = json.loads(answer.read())["id"]
        assert answer.headers["X-Request-Id"] == "web-7f3a"
        connection.request("GET", f"/v1/jobs/{job}?wait=30")
        assert json.loads(connection.getresponse().read())["state"] == "succeeded"
        connection.close()
        assert server.stop() == 0
    told = [json.loads(line) for line in server.lines]
    assert [line["part"] for line in told if line.get("request") == "web-7f3a"] == ["api"]
    assert len({line["pid"] for line in told}) > 1, "its worker logs as it does"
    assert "77123456789" not in "".join(server.lines)
