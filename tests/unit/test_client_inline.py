"""Inline mode keeps the rules that a real job keeps."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from examples import quickstart
from penstock import Context, JobEnded, Penstock, Retry, State
from penstock.model.errors import Invalid, InvalidParams, KeyConflict, NotFound, UnknownType
from penstock.model.job import ErrorCode
from penstock.testing import inline


@pytest.fixture
def app() -> Penstock:
    return Penstock("http://nobody.invalid")


class Cat(msgspec.Struct):
    name: str
    born_at: datetime


def test_params_and_results_go_through_json_and_come_back_typed(app: Penstock) -> None:
    @app.job
    def older(cat: Cat) -> tuple[Cat, int]:
        return cat, cat.born_at.year

    with inline.run(app):
        cat = Cat("Tom", datetime(1940, 2, 10, tzinfo=UTC))
        assert older.submit(cat).wait().result == (cat, 1940)


def test_a_call_that_the_handler_would_not_take_is_refused_at_submit(app: Penstock) -> None:
    @app.job
    def double(a: int) -> int:
        return 2 * a

    with inline.run(app) as jobs:
        with pytest.raises(InvalidParams):
            app.client.submit("double", {"a": "one"})
        with pytest.raises(UnknownType, match="double"):
            app.client.submit("triple")
        assert jobs.all() == []


def test_an_error_is_tried_again_without_waiting(app: Penstock) -> None:
    @app.job(retry=Retry.fixed(delay=3600, max_attempts=3))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("away")
        return ctx.attempt

    with inline.run(app) as jobs:
        assert flaky.submit().wait().result == 3
        assert (jobs.of("flaky")[0].fence, jobs.of("flaky")[0].error) == (3, None)


def test_a_job_out_of_attempts_fails_with_its_last_error(app: Penstock) -> None:
    @app.job(retry=Retry.fixed(max_attempts=2))
    def broken() -> None:
        raise KeyError("cat")

    with inline.run(app):
        job = broken.submit()
        with pytest.raises(JobEnded, match=r"attempt 2 of 2.*KeyError"):
            job.wait()
        error = job.item.error
    assert error is not None
    assert (error.code, error.attempt, error.error_class) == (ErrorCode.RAISED, 2, "builtins.KeyError")
    assert "test_client_inline.py" in (error.traceback or "")


def test_a_subclass_of_an_error_that_is_never_tried_again_is_not_either() -> None:
    app = Penstock()

    @app.job(retry=Retry.fixed(delay=0, max_attempts=3, never=(LookupError,)))
    def look(key: str) -> str:
        return {"a": "b"}[key]

    with inline.run(app) as jobs:
        look.submit("c")
        assert jobs.of("look")[0].attempt == 1


def test_errors_that_are_never_retried_are_not(app: Penstock) -> None:
    @app.job(retry=Retry.fixed(max_attempts=9, never=("ValueError",)))
    def hopeless() -> None:
        raise ValueError("no")

    @app.job
    def unwritable() -> object:
        return object()

    with inline.run(app) as jobs:
        hopeless.submit()
        unwritable.submit()
        first, second = jobs.all()
    assert (first.attempt, second.attempt) == (1, 1)
    assert second.error is not None
    assert second.error.code is ErrorCode.INVALID_RESULT


def test_inputs_are_files_and_outputs_belong_to_the_attempt_that_succeeded(app: Penstock, tmp_path: Path) -> None:
    @app.job(retry=Retry.fixed(max_attempts=2))
    def copy(ctx: Context) -> None:
        ctx.outputs.write(f"copy-{ctx.attempt}.txt", ctx.inputs["poem"].read_bytes(), "text/plain")
        ctx.progress(ctx.attempt / 2, "copied")
        if ctx.attempt == 1:
            raise OSError("disk")

    poem = tmp_path / "poem.txt"
    poem.write_text("so much depends")
    with inline.run(app):
        job = copy.using(inputs={"poem": poem}, tags=["x"]).submit().wait()
        assert [(file.name, file.content_type) for file in job.outputs] == [("copy-2.txt", "text/plain")]
        assert job.output("copy-2.txt") == b"so much depends"
        assert job.download("copy-2.txt", tmp_path).read_text() == "so much depends"
        assert job.item.progress is not None
        assert (job.item.progress.fraction, job.item.tags) == (1.0, ("x",))
        with pytest.raises(NotFound, match="copy-2"):
            job.output("copy-1.txt")


def test_a_key_gives_the_same_job_back_or_refuses_another(app: Penstock) -> None:
    @app.job
    def double(a: int) -> int:
        return 2 * a

    with inline.run(app) as jobs:
        keyed = double.using(key="order-7")
        assert keyed.submit(1).id == keyed.submit(1).id
        with pytest.raises(KeyConflict):
            keyed.submit(2)
        assert len(jobs.all()) == 1


def test_logging_is_kept_as_the_jobs_log(app: Penstock) -> None:
    @app.job
    def chatty(ctx: Context) -> None:
        ctx.log.info("hello %s", "cat")

    with inline.run(app):
        assert [(line.stream, line.text) for line in chatty.submit().logs()] == [("info", "hello cat")]


def test_a_job_may_submit_another(app: Penstock) -> None:
    @app.job
    def inner(a: int) -> int:
        return a + 1

    @app.job
    async def outer(a: int) -> int:
        job = await inner.submit_async(a)
        return (await job.wait_async()).result * 10

    with inline.run(app) as jobs:
        assert outer.submit(1).wait().result == 20
        assert {job.type for job in jobs.all()} == {"inner", "outer"}


async def test_a_coroutine_handler_runs_inline_inside_a_running_loop(app: Penstock) -> None:
    @app.job
    async def where() -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    with inline.run(app):
        assert where.submit().wait().result is False


def test_a_delay_is_told_but_not_waited_for(app: Penstock) -> None:
    @app.job
    def later() -> None: ...

    with inline.run(app):
        item = later.using(delay=3600).submit().item
    assert item.state is State.SUCCEEDED
    assert (item.scheduled_at - item.created_at).total_seconds() == 3600


def test_a_retry_by_hand_is_a_new_job(app: Penstock) -> None:
    @app.job
    def double(a: int) -> int:
        return 2 * a

    with inline.run(app):
        job = double.submit(4)
        again = app.client.retry(job.id)
    assert (again.retry_of, again.result) == (job.id, 8)


def test_commands_are_refused_and_the_real_clients_come_back(app: Penstock) -> None:
    before = app.client, app.async_client
    shout = app.command("shout", ["tr", "a-z", "A-Z"])
    with inline.run(app), pytest.raises(Invalid, match="command"):
        shout.submit(text="x")
    assert (app.client, app.async_client) == before


def test_the_quick_start_does_what_it_says() -> None:
    with inline.run(quickstart.app):
        assert quickstart.add.submit(1, 2).wait().result == 3
        assert quickstart.flaky.submit().wait().result == "succeeded in attempt 3"
        assert quickstart.report.submit(rows=2).wait().output("report.csv") == b"number,square\n0,0\n1,1\n"
        words = quickstart.word_count.using(inputs={"poem": b"so much depends"}).submit()
        assert words.wait().result == {"poem": 3}
        assert quickstart.slow.submit(0.1).wait().result == "slept 0.1 s"
