"""What a worker does with jobs that end by themselves: real agent, real executors, an obedient engine."""

import json
import os
from pathlib import Path

import psutil
import pytest

from penstock.model.clock import SystemClock
from penstock.model.errors import InvalidSetting
from penstock.model.job import ErrorCode
from penstock.worker.agent.agent import Agent
from tests.services.fake_worker_api import FakeWorkerApi
from tests.services.running_worker import run_worker, settings


async def test_coroutines_run_on_the_loop_and_functions_in_threads(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        jobs = [at.worker_api.submit("add", a=2), at.worker_api.submit("multiply", a=3, b=4)]
        assert [await at.worker_api.result(job) for job in jobs] == [3, 12]


async def test_many_jobs_share_the_capacity_and_none_is_fetched_ahead(tmp_path: Path) -> None:
    async with run_worker(tmp_path, capacity=5) as at:
        jobs = [at.worker_api.submit("add", a=number) for number in range(200)]
        assert [await at.worker_api.result(job) for job in jobs] == [number + 1 for number in range(200)]
        assert max(at.worker_api.limits) <= 5


async def test_an_isolated_job_gets_a_process_of_its_own(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        shared = await at.worker_api.result(at.worker_api.submit("pid"))
        first = await at.worker_api.result(at.worker_api.submit("pid_of_isolated"))
        second = await at.worker_api.result(at.worker_api.submit("pid_of_isolated"))
        assert len({shared, first, second}) == 3


async def test_a_suspect_runs_alone(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        shared = await at.worker_api.result(at.worker_api.submit("pid"))
        assert await at.worker_api.result(at.worker_api.submit("pid", alone=True)) != shared


async def test_params_that_do_not_fit_are_never_tried_again(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        outcome = await at.worker_api.outcome(at.worker_api.submit("add", c=1))
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.retryable) == (ErrorCode.INVALID_PARAMS, False)


async def test_an_exception_is_told_with_its_class_and_the_handlers_own_traceback(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("fail", text="no luck", attempt=2))).error
        assert error is not None
        assert (error.code, error.message, error.attempt) == (ErrorCode.RAISED, "no luck", 2)
        assert error.error_class == "builtins.ValueError"
        assert error.traceback is not None
        assert "worker_app.py" in error.traceback
        assert "executor.py" not in error.traceback


async def test_leaving_python_is_an_error_like_any_other(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("leave_python"))).error
        assert error is not None
        assert (error.code, error.error_class) == (ErrorCode.RAISED, "builtins.SystemExit")


async def test_a_result_that_is_not_json_is_refused(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("unencodable"))).error
        assert error is not None
        assert error.code is ErrorCode.INVALID_RESULT


async def test_everything_a_job_writes_is_in_its_log_before_its_end(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("speak")
        await at.worker_api.outcome(job)
        assert at.worker_api.text(job) == [
            ("stdout", "printed"),
            ("stderr", "complained"),
            ("warning", "library: warned"),
            ("info", "logged"),
            ("stdout", "no newline"),
        ]


async def test_jobs_on_one_loop_keep_their_logs_apart(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        jobs = {word: at.worker_api.submit("speak_async", word=word) for word in ("red", "blue", "green")}
        for word, job in jobs.items():
            await at.worker_api.outcome(job)
            assert at.worker_api.text(job) == [("stdout", f"{word} one"), ("stdout", f"{word} two")]


async def test_a_log_is_cut_at_its_cap_and_says_so(tmp_path: Path) -> None:
    async with run_worker(tmp_path, log_bytes=100) as at:
        job = at.worker_api.submit("babble")
        await at.worker_api.outcome(job)
        texts = [text for _, text in at.worker_api.text(job)]
        assert texts[0] == "line 0"
        assert texts[-1] == "… log cut at 100 bytes"
        assert sum(len(text) + 1 for text in texts[:-1]) <= 100


async def test_progress_is_coalesced_and_sent_between_heartbeats(tmp_path: Path) -> None:
    async with run_worker(tmp_path, heartbeat=5.0) as at:
        job = at.worker_api.submit("report")
        await at.worker_api.until("progress is told", lambda: job in at.worker_api.progress)
        assert len(at.worker_api.progress[job]) <= 5
        at.go()
        await at.worker_api.outcome(job)


async def test_inputs_are_there_and_outputs_are_linked_with_the_success(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        files = [at.worker_api.add_input("b.json", b"{}"), at.worker_api.add_input("a.txt", b"hello")]
        job = at.worker_api.submit("copy", inputs=files)
        assert await at.worker_api.result(job) == ["a.txt", "b.json"]
        links = at.worker_api.outcomes[job].outputs
        assert [(link.name, link.object.content_type) for link in links] == [
            ("copy-of-a.txt", "text/x-copy"),
            ("copy-of-b.json", "application/json"),
        ]
        assert at.worker_api.outputs[job, 0] == (b"hello", "text/x-copy")
        await at.vanishes(Path((tmp_path / "scratch").read_text()))


@pytest.mark.parametrize("names", [("x" * 255, "input-0"), ("ä" * 127, "日" * 85), ("input-1", "input-0")])
async def test_inputs_have_the_names_they_were_given_whatever_these_are(tmp_path: Path, names: tuple[str, str]) -> None:
    async with run_worker(tmp_path) as at:
        files = [at.worker_api.add_input(name, name.encode()) for name in names]
        assert await at.worker_api.result(at.worker_api.submit("read", inputs=files)) == dict(
            zip(names, names, strict=True)
        )


@pytest.mark.parametrize("name", ["x" * 256, "a/b", "a\0b"])
async def test_an_input_that_cannot_lie_here_ends_the_attempt_and_not_the_worker(tmp_path: Path, name: str) -> None:
    async with run_worker(tmp_path) as at:
        error = (
            await at.worker_api.outcome(at.worker_api.submit("copy", inputs=[at.worker_api.add_input(name, b"x")]))
        ).error
        assert error is not None
        assert error.code is ErrorCode.INPUT_UNAVAILABLE
        assert await at.worker_api.result(
            at.worker_api.submit("copy", inputs=[at.worker_api.add_input("a", b"x")])
        ) == ["a"]


async def test_a_corrupt_input_ends_the_attempt_for_good(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        file = at.worker_api.add_input("a.txt", b"hello")
        at.worker_api.inputs["a.txt"] = b"jello"
        error = (await at.worker_api.outcome(at.worker_api.submit("copy", inputs=[file]))).error
        assert error is not None
        assert (error.code, error.retryable) == (ErrorCode.CORRUPT_INPUT, False)


async def test_an_attempt_that_errors_gives_no_outputs(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("write_and_fail")
        error = (await at.worker_api.outcome(job)).error
        assert error is not None
        assert (error.message, at.worker_api.outputs) == ("after all", {})
        await at.vanishes(Path((tmp_path / "scratch").read_text()))


async def test_a_folder_is_no_output(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("bad_output"))).error
        assert error is not None
        assert (error.code, error.retryable) == (ErrorCode.INVALID_OUTPUT, False)


async def test_a_program_gets_its_params_and_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "undeclared")
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("shout", word="hi")
        assert await at.worker_api.result(job) == {"got": "declared"}
        assert ("stdout", json.dumps({"WORD": "HI"}).upper() + "out") in at.worker_api.text(job)
        assert ("stderr", "err") in at.worker_api.text(job)


@pytest.mark.parametrize(
    ("type_name", "code", "text"),
    [
        ("break", ErrorCode.EXIT_STATUS, "the program exited with status 4: the reason"),
        ("missing", ErrorCode.EXIT_STATUS, "/nonexistent/program cannot be started"),
        ("not-json", ErrorCode.INVALID_RESULT, "the program's result is not JSON"),
    ],
)
async def test_a_program_that_fails_says_why(tmp_path: Path, type_name: str, code: ErrorCode, text: str) -> None:
    async with run_worker(tmp_path) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit(type_name))).error
        assert error is not None
        assert error.code is code
        assert error.message.startswith(text)


async def test_a_program_reads_inputs_and_writes_outputs_as_files(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        job = at.worker_api.submit("convert", inputs=[at.worker_api.add_input("page", b"<p>")])
        await at.worker_api.result(job)
        [link] = at.worker_api.outcomes[job].outputs
        assert (link.name, link.object.content_type) == ("page.html", "text/html")


async def test_an_executor_is_recycled_after_its_jobs(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1, recycle_jobs=3) as at:
        pids: set[object] = set()
        while len(pids) < 3:
            pids.add(await at.worker_api.result(at.worker_api.submit("pid")))


async def test_an_app_that_cannot_be_imported_is_the_operators_to_mend(tmp_path: Path) -> None:
    agent = Agent("no_such_module:app", FakeWorkerApi(), settings(), SystemClock())
    with pytest.raises(InvalidSetting, match="no_such_module:app cannot be imported: ModuleNotFoundError"):
        await agent.start()


async def test_an_app_that_dies_on_import_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(InvalidSetting, match="exited with status 9"):
        await Agent("deadly:app", FakeWorkerApi(), settings(), SystemClock()).start()


async def test_nothing_is_left_when_a_worker_has_ended(tmp_path: Path) -> None:
    async with run_worker(tmp_path) as at:
        await at.worker_api.result(at.worker_api.submit("add", a=1))
        started = at.executors()
    assert at.worker_api.left
    assert not [one for one in started if psutil.pid_exists(one)]
