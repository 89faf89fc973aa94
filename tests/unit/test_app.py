"""Declaring job types and what they look like: to a worker, to a type checker, to a caller."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import Context, JobEnded, JobHandle, Penstock, Retry, State
from penstock.app import Handler
from penstock.model.errors import Conflict, Invalid, InvalidParams
from penstock.model.retry import RetryKind
from penstock.model.workers import DEFAULT_TIMEOUT_SECONDS, HandlerKind
from penstock.testing import inline

CASES = Path(__file__).with_name("typing_cases.py")


@pytest.fixture
def app() -> Penstock:
    return Penstock()


def test_a_bare_decorator_takes_every_default(app: Penstock) -> None:
    @app.job
    async def add(a: int, b: int = 0) -> int:
        """Add two numbers."""
        return a + b

    declared = app.handlers["add"].declared
    assert (declared.name, declared.queue, declared.kind) == ("add", "add", HandlerKind.ASYNC)
    assert declared.timeout_seconds == DEFAULT_TIMEOUT_SECONDS
    assert declared.description == "Add two numbers."
    assert declared.params_schema is not None
    assert set(declared.params_schema["properties"]) == {"a", "b"}


def test_a_decorator_with_options_declares_them(app: Penstock) -> None:
    @app.job(
        name="mail.send", queue="mail", priority=9, retry=Retry.fixed(), timeout=timedelta(minutes=1), isolated=True
    )
    def send(ctx: Context, to: str) -> None: ...

    declared = app.handlers["mail.send"].declared
    assert (declared.queue, declared.priority, declared.kind) == ("mail", 9, HandlerKind.ISOLATED)
    assert declared.retry.kind is RetryKind.FIXED
    assert declared.timeout_seconds == 60


def test_a_timeout_of_none_means_no_bound(app: Penstock) -> None:
    handler = app.command("endless", ["sleep", "infinity"], timeout=None)
    assert handler.declared.timeout_seconds is None


def test_a_command_is_argv_and_takes_named_params_only(app: Penstock) -> None:
    shout = app.command("shout", ["tr", "a-z", "A-Z"], queue="loud", env={"LANG": "C"})
    assert shout.command is not None
    assert (shout.command.argv, shout.declared.kind) == (("tr", "a-z", "A-Z"), HandlerKind.COMMAND)
    assert bytes(shout.params((), {"text": "x"})) == b'{"text":"x"}'
    with pytest.raises(InvalidParams, match="by name"):
        shout.submit("x")
    with pytest.raises(Invalid, match=r"\['tr', 'a-z'\]"):
        app.command("bad", "tr a-z")


@pytest.mark.parametrize(
    ("options", "fault"),
    [({"name": "with space"}, "name"), ({"priority": 10}, "priority"), ({"retries": 3}, "retries")],
)
def test_a_declaration_that_cannot_be_is_refused_at_once(app: Penstock, options: dict[str, object], fault: str) -> None:
    def nothing() -> None: ...

    with pytest.raises(Invalid, match=fault):
        app.job(**options)(nothing)  # type: ignore[call-overload]


def test_a_type_declared_twice_is_refused(app: Penstock) -> None:
    app.command("twice", ["true"])
    with pytest.raises(Invalid, match="twice"):
        app.command("twice", ["true"])


async def test_calling_a_handler_calls_its_function(app: Penstock) -> None:
    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    @app.job
    def double(a: int) -> int:
        return 2 * a

    assert (await add(1, 2), double(4)) == (3, 8)
    assert (double.__name__, isinstance(double, Handler)) == ("double", True)


def test_importing_penstock_imports_no_http_library() -> None:
    told = "import sys, penstock; penstock.Penstock().client; print(*[m for m in sys.modules if m.startswith('httpx')])"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_result_is_only_read_once_the_job_has_ended(app: Penstock) -> None:
    @app.job
    def outer() -> str:
        with pytest.raises(Conflict, match="wait"):
            seen.append(outer_handle().result)
        return "done"

    def outer_handle() -> JobHandle[str]:
        return JobHandle(jobs.all()[0].id, app, outer.read_result)

    seen: list[str] = []
    with inline.run(app) as jobs:
        assert outer.submit().wait().result == "done"
    assert seen == []


def test_an_unsuccessful_job_raises_its_own_error(app: Penstock) -> None:
    @app.job(retry=Retry.none())
    def refuse() -> None:
        raise ValueError("no such cat")

    with inline.run(app), pytest.raises(JobEnded, match=r"refuse\) failed.*ValueError: no such cat") as caught:
        refuse.submit().wait()
    item = caught.value.details["job"]
    assert getattr(item, "state", None) is State.FAILED


def test_submit_many_checks_every_call_before_it_sends_one(app: Penstock) -> None:
    @app.job
    def double(a: int) -> int:
        return 2 * a

    with inline.run(app) as jobs:
        with pytest.raises(InvalidParams):
            double.submit_many([(1,), {"a": "two"}])
        assert jobs.all() == []
        assert [job.wait().result for job in double.submit_many([(1,), {"a": 2}])] == [2, 4]


async def test_submitting_and_waiting_need_not_block(app: Penstock) -> None:
    @app.job
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    with inline.run(app):
        job = await add.submit_async(1, 2)
        assert (await job.wait_async()).result == 3


def test_a_type_checker_sees_the_handlers_own_parameters() -> None:
    api = pytest.importorskip("mypy.api")
    told, _, _ = api.run(["--no-error-summary", "--no-incremental", "--strict", str(CASES)])
    lines = [line for line in told.splitlines() if CASES.name in line]
    assert [line for line in lines if ": error: " in line] == []
    assert list(_revealed(lines)) == list(_expected())


def _expected() -> Iterator[tuple[int, str]]:
    for number, line in enumerate(CASES.read_text().splitlines(), 1):
        if found := re.search(r"  # seen: (.+)$", line):
            yield number, found[1]


def _revealed(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The types revealed, by line, without the modules of their names."""
    for line in lines:
        if found := re.search(r':(\d+): note: Revealed type is "(.*)"$', line):
            yield int(found[1]), re.sub(r"\b[a-z_]+\.(?=[\w.])", "", found[2])
