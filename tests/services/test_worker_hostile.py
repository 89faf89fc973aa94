"""What handlers say that cannot be written down: their jobs end with what could be, at once, and so do all others."""

from pathlib import Path
from typing import Any

from penstock.model.job import ErrorCode
from tests.services.running_worker import RunningWorker, run_worker

SOON = 5.0
HALF = "half a character: \\ud83d"

ERRORS: list[tuple[str, dict[str, Any], ErrorCode, str]] = [
    ("raise_half", {}, ErrorCode.RAISED, HALF),
    ("raise_mute", {}, ErrorCode.RAISED, "<a Mute whose text cannot be had: RuntimeError>"),
    ("raise_poser", {}, ErrorCode.RAISED, HALF),
    ("print_bytes", {}, ErrorCode.RAISED, "must be str, not bytes"),
    ("progress_of", {"number": "huge"}, ErrorCode.RAISED, "progress is a number from 0 to 1"),
    ("progress_of", {"number": "nan"}, ErrorCode.RAISED, "progress is a number from 0 to 1"),
    ("progress_of", {"number": "text"}, ErrorCode.RAISED, "progress is a number from 0 to 1, not str"),
    ("progress_of", {"number": "nothing"}, ErrorCode.RAISED, "progress is a number from 0 to 1, not NoneType"),
    ("progress_says", {"text": False}, ErrorCode.RAISED, "the message of a progress is text, not int"),
    ("return_half", {}, ErrorCode.INVALID_RESULT, "which is not JSON"),
    ("return_raw", {}, ErrorCode.INVALID_RESULT, "which is not JSON"),
    ("return_nan", {}, ErrorCode.INVALID_RESULT, "result.items[3].price is NaN"),
    (
        "return_text_for_number",
        {},
        ErrorCode.INVALID_RESULT,
        "not what the handler declares: Expected `int`, got `str`",
    ),
    ("return_infinity_isolated", {}, ErrorCode.INVALID_RESULT, "result is -Infinity"),
    ("return_too_much", {}, ErrorCode.INVALID_RESULT, "the result has more than 16,711,680 bytes"),
    ("not-a-number", {}, ErrorCode.INVALID_RESULT, "result.prices[1] is NaN"),
    ("too-much", {}, ErrorCode.INVALID_RESULT, "the result has more than 16,711,680 bytes"),
    ("output_of_type", {"kind": "number"}, ErrorCode.RAISED, "5 is not a content type"),
    ("output_of_type", {"kind": "half"}, ErrorCode.RAISED, "is not a content type"),
    ("output_of_type", {"kind": "words"}, ErrorCode.RAISED, "'no type' is not a content type"),
    ("output_named_half", {}, ErrorCode.RAISED, "cannot name a file"),
    ("null-byte", {}, ErrorCode.EXIT_STATUS, "embedded null byte"),
]
RESULTS: list[tuple[str, dict[str, Any], str]] = [
    ("print_half", {}, "printed"),
    ("log_badly", {}, "logged"),
    ("progress_of", {"number": "decimal"}, "reported"),
    ("progress_of", {"number": "fraction"}, "reported"),
    ("progress_of", {"number": "true"}, "reported"),
    ("progress_says", {"text": True}, "reported"),
]


async def neighbours(at: RunningWorker) -> list[str]:
    """Jobs that run in the same executor, and end among what is submitted next."""
    jobs = [at.worker_api.submit("wait_async", name=f"n{number}") for number in range(3)]
    for number in range(3):
        await at.appears(f"waiting-n{number}")
    return jobs


async def test_what_a_handler_cannot_say_is_its_own_jobs_error(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1, capacity=40) as at:
        others = await neighbours(at)
        jobs = [at.worker_api.submit(type_name, **params) for type_name, params, _, _ in ERRORS]
        at.go()
        for job, (type_name, _, code, text) in zip(jobs, ERRORS, strict=True):
            error = (await at.worker_api.outcome(job, SOON)).error
            assert error is not None, type_name
            assert (type_name, error.code) == (type_name, code)
            assert text in error.message
        assert [await at.worker_api.result(job) for job in others] == ["n0", "n1", "n2"]


async def test_what_a_handler_says_badly_on_the_way_fails_nothing(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1, capacity=40) as at:
        others = await neighbours(at)
        jobs = [at.worker_api.submit(type_name, **params) for type_name, params, _ in RESULTS]
        at.go()
        for job, (_, _, result) in zip(jobs, RESULTS, strict=True):
            outcome = await at.worker_api.outcome(job, SOON)
            assert (outcome.error, bytes(outcome.result)) == (None, f'"{result}"'.encode())
        assert [await at.worker_api.result(job) for job in others] == ["n0", "n1", "n2"]


async def test_an_error_is_told_with_the_escapes_of_what_cannot_be_written(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("raise_poser"), SOON)).error
        assert error is not None
        assert error.error_class == "mod\\udcff.Poser\\ud800"
        assert error.traceback is not None
        assert HALF in error.traceback


async def test_lines_are_kept_with_the_escapes_of_what_cannot_be_written(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        job = at.worker_api.submit("print_half")
        await at.worker_api.outcome(job, SOON)
        assert at.worker_api.text(job) == [("stdout", HALF), ("stderr", HALF)]


async def test_a_record_that_cannot_be_formatted_says_so(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        job = at.worker_api.submit("log_badly")
        await at.worker_api.outcome(job, SOON)
        [(_, first), (_, second), (level, third)] = at.worker_api.text(job)
        assert first.startswith("library: %d of them (it cannot be formatted: ")
        assert second.startswith("library\\ud800: %s (it cannot be formatted: ")
        assert (level, third) == (HALF, HALF)


async def test_content_types_put_there_by_hand_are_read_as_text(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        error = (await at.worker_api.outcome(at.worker_api.submit("output_types_by_hand"), SOON)).error
        assert error is not None
        assert (error.code, "'5'" in error.message) == (ErrorCode.INVALID_OUTPUT, True)


GARBAGE = [
    "hello\n",
    "\0\0\0\1\xc1",  # a byte that is nothing in msgpack
    "\0\0\0\3\x91\x91\x63",  # a frame of an unknown kind
    "\0\0\0\4\x91\x92\x0c\xa0",  # a place that is text
]


async def test_an_executor_that_cannot_be_understood_has_crashed(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        for garbage in GARBAGE:
            error = (
                await at.worker_api.outcome(at.worker_api.submit("scribble", text=garbage, alone=True), SOON)
            ).error
            assert error is not None
            assert error.code is ErrorCode.CRASHED
            assert "what cannot be read" in error.message
        assert await at.worker_api.result(at.worker_api.submit("add", a=1)) == 2


async def test_all_in_an_executor_that_cannot_be_understood_are_suspects(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1) as at:
        others = await neighbours(at)
        guilty = at.worker_api.submit("scribble", text="hello")
        await at.worker_api.until("all are released", lambda: len(at.worker_api.released) == 4, SOON)
        assert at.worker_api.released == dict.fromkeys([*others, guilty], True)
