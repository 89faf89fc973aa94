"""Both clients against an answering function: what is sent again, how often, and what is never sent twice."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from penstock.client import AsyncClient, Client, environment
from penstock.client.environment import LONG, SHORT, server_url
from penstock.client.http import AsyncHttpTransport, HttpTransport
from penstock.client.options import JobSpec, body_of
from penstock.client.protocol import BATCH_JOBS, batches
from penstock.model.errors import (
    CorruptObject,
    Invalid,
    InvalidParams,
    JobEnded,
    KeyConflict,
    NotFound,
    PenstockError,
    Refused,
    ServerUnavailable,
    StoreUnavailable,
    TooLarge,
    Unavailable,
    UnknownType,
    WaitTimeout,
)
from penstock.model.ids import JobId
from penstock.model.lifecycle import State
from penstock.model.retry import Retry
from penstock.model.sdk_keys import read_sdk_key
from penstock.model.wire.jobs import (
    BatchAnswer,
    BatchResponse,
    FileItem,
    JobItem,
    JobPage,
    Problem,
    SubmitRequest,
    Upload,
)

URL = "http://penstock.test"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
ID = JobId("0190a6e2-0000-7000-8000-000000000000")
FILE = FileItem("a.txt", 5, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "text/plain")

Answer = httpx2.Response | Exception


class FakeTime:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return sum(self.slept)

    def pause(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def sleep(self, span: timedelta) -> None:
        self.slept.append(span.total_seconds())


class Server:
    """Answers each request with the next of `answers` (the last one for ever), and keeps what it was asked."""

    def __init__(self, *answers: Answer | Callable[[httpx2.Request], Answer]) -> None:
        self._answers = list(answers)
        self.requests: list[httpx2.Request] = []
        self.time = FakeTime()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        return self._answer(request)

    async def answer(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        return self._answer(request)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        given = answer(request) if callable(answer) else answer
        if isinstance(given, Exception):
            raise given
        return given

    @property
    def bodies(self) -> list[Any]:
        return [msgspec.json.decode(request.content) for request in self.requests]

    @property
    def keys(self) -> list[str]:
        """The keys that stood in headers."""
        return [key for request in self.requests if (key := request.headers.get("idempotency-key")) is not None]

    def client(self, **options: Any) -> Client:
        transport = HttpTransport(URL, httpx2.MockTransport(self))
        return Client(transport=transport, clock=self.time, rng=random.Random(7), sleep=self.time.pause, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        transport = AsyncHttpTransport(URL, httpx2.MockTransport(self.answer))
        return AsyncClient(transport=transport, clock=self.time, rng=random.Random(7), **options)


def item(**changes: Any) -> JobItem:
    known: dict[str, Any] = {name: None for name in JobItem.__struct_fields__} | {
        "id": ID,
        "type": "add",
        "queue": "add",
        "state": State.QUEUED,
        "priority": 5,
        "params": msgspec.Raw(b"{}"),
        "result": msgspec.Raw(b"null"),
        "attempt": 0,
        "max_attempts": 3,
        "fence": 0,
        "version": 1,
        "retry_policy": Retry(),
        "scheduled_at": NOW,
        "created_at": NOW,
        "cancel_requested": False,
        "tags": (),
        "inputs": (),
        "outputs": (),
        "omitted": (),
    }
    return JobItem(**known | changes)


def answer(value: object, status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, content=msgspec.json.encode(value), headers=headers)


def problem(status: int, code: str, detail: str = "because", **headers: str) -> httpx2.Response:
    told = Problem(type="about:blank", title="t", status=status, code=code, detail=detail)
    return answer(told, status, **{"content-type": "application/problem+json", **headers})


def unreachable() -> httpx2.ConnectError:
    return httpx2.ConnectError("Connection refused")


TROUBLE = [
    pytest.param(unreachable, id="refused connection"),
    pytest.param(lambda: httpx2.ReadError("reset"), id="reset while reading"),
    pytest.param(lambda: httpx2.RemoteProtocolError("hung up"), id="hung up"),
    pytest.param(lambda: httpx2.ReadTimeout("slow"), id="no answer in time"),
    pytest.param(lambda: problem(503, "store_unavailable"), id="503"),
    pytest.param(lambda: httpx2.Response(502, text="<html>bad gateway"), id="502 of a proxy"),
    pytest.param(lambda: httpx2.Response(504), id="504 of a proxy"),
    pytest.param(lambda: httpx2.Response(429), id="429 of a proxy"),
    pytest.param(lambda: httpx2.Response(500, text="<html>"), id="500 of a proxy"),
]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_submit_that_met_trouble_is_sent_again_under_the_same_key(trouble: Callable[[], Answer]) -> None:
    server = Server(trouble(), trouble(), answer(item(), 201))
    with server.client() as client:
        assert client.submit("add", {"a": 1}).id == ID
    assert len(server.keys) == 3
    assert len(set(server.keys)) == 1


@pytest.mark.parametrize("trouble", TROUBLE)
async def test_the_async_client_does_the_same(trouble: Callable[[], Answer]) -> None:
    server = Server(trouble(), answer(item(), 201))
    async with server.async_client() as client:
        assert (await client.submit("add", {"a": 1})).id == ID
    first, second = zip(server.bodies, server.keys, strict=True)
    assert first == second


def test_two_submits_have_two_keys_and_a_users_key_is_kept() -> None:
    server = Server(answer(item()))
    with server.client() as client:
        client.submit("add")
        client.submit("add")
        client.submit("add", key="order-7")
    assert len(set(server.keys)) == 2
    assert [body.get("idempotency_key") for body in server.bodies] == [None, None, "order-7"]


SHARDS = "0=1 2=0.5 7=3"


def homes(server: Server) -> list[int | None]:
    return [found.home for key in server.keys if (found := read_sdk_key(key)) is not None]


def test_the_keys_of_a_client_name_the_shards_that_it_was_told_of_by_weight() -> None:
    server = Server(answer(item(), 201, **{"penstock-shards": SHARDS}))
    with server.client() as client:
        for _ in range(900):
            client.submit("add")
    first, *later = homes(server)
    assert first is None
    assert set(later) == {0, 2, 7}
    assert later.count(7) > later.count(0) > later.count(2)


def test_told_to_choose_another_shard_a_client_does_at_once() -> None:
    server = Server(
        problem(409, "choose_shard", **{"penstock-shards": "3=1"}),
        problem(409, "choose_shard", **{"penstock-shards": "4=1"}),
        answer(item(), 201),
    )
    with server.client() as client:
        client.submit("add")
    assert (homes(server), server.time.slept) == ([None, 3, 4], [])
    assert len({key.rpartition(":")[2] for key in server.keys}) == 3


def test_told_so_for_ever_it_gives_up() -> None:
    server = Server(problem(409, "choose_shard", "shard 3 takes no new jobs now", **{"penstock-shards": "3=1"}))
    with server.client() as client, pytest.raises(ServerUnavailable, match="takes no new jobs"):
        client.submit("add")
    assert sum(server.time.slept) <= 30


@pytest.mark.parametrize(
    ("trouble", "repeated"),
    [
        (unreachable(), False),
        (problem(503, "map_changed"), False),
        (problem(503, "store_unavailable"), True),
        (httpx2.ReadTimeout("slow"), True),
        (httpx2.Response(502), True),
    ],
)
def test_a_submit_says_whether_it_may_have_been_carried_out_before(trouble: Answer, repeated: bool) -> None:
    server = Server(trouble, answer(item(), 201))
    with server.client() as client:
        client.submit("add")
    assert ["penstock-repeated" in request.headers for request in server.requests] == [False, repeated]


def test_once_it_may_have_been_carried_out_it_says_so_whatever_comes_next() -> None:
    server = Server(httpx2.ReadTimeout("slow"), unreachable(), answer(item(), 201))
    with server.client() as client:
        client.submit("add")
    assert ["penstock-repeated" in request.headers for request in server.requests] == [False, True, True]


def test_patience_ends_and_says_where_nobody_answered() -> None:
    server = Server(unreachable())
    with server.client(patience=10) as client, pytest.raises(ServerUnavailable, match=r"penstock\.test.*penstock up"):
        client.submit("add")
    assert len(server.requests) > 3
    assert sum(server.time.slept) <= 10


def test_no_patience_means_one_attempt() -> None:
    server = Server(unreachable())
    with server.client(patience=0) as client, pytest.raises(ServerUnavailable):
        client.get(ID)
    assert len(server.requests) == 1
    assert server.time.slept == []


def test_a_submit_gives_up_after_what_a_web_request_bears() -> None:
    server = Server(unreachable())
    with server.client() as client, pytest.raises(ServerUnavailable):
        client.submit("add")
    assert len(server.requests) > 2
    assert sum(server.time.slept) <= SHORT.total_seconds() <= 5


def test_a_handler_has_more_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_worker_server", (URL, ""))
    server = Server(*[unreachable()] * 10, answer(item()))
    with server.client() as client:
        client.submit("add")
    assert SHORT < timedelta(seconds=sum(server.time.slept)) <= LONG


@pytest.mark.parametrize("told", ["0", "10", "60"])
def test_patience_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("PENSTOCK_PATIENCE", told)
    server = Server(unreachable())
    with server.client() as client, pytest.raises(ServerUnavailable):
        client.submit("add")
    assert float(told) / 2 <= sum(server.time.slept) <= float(told)


@pytest.mark.parametrize("told", ["soon", "-1", "nan", "inf"])
def test_patience_that_is_no_number_of_seconds_is_refused(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    monkeypatch.setenv("PENSTOCK_PATIENCE", told)
    with Server(unreachable()).client() as client, pytest.raises(Invalid, match="PENSTOCK_PATIENCE: expected a number"):
        client.submit("add")


@pytest.mark.parametrize(
    ("patience", "connect", "answer_in"), [(0, 1, 10), (3, 3, 10), (None, 5, 10), (20, 5, 20), (90, 5, 30)]
)
def test_a_server_that_does_not_answer_a_submit_is_given_up_too(
    patience: float | None, connect: float, answer_in: float
) -> None:
    server = Server(answer(item()))
    with server.client(patience=patience) as client:
        client.submit("add")
        client.get(ID)
    submitted, read = (request.extensions["timeout"] for request in server.requests)
    assert (submitted["connect"], submitted["read"]) == (connect, answer_in)
    assert (read["connect"], read["read"]) == (5, 30)


def test_a_pause_is_never_shorter_than_the_server_asks() -> None:
    server = Server(problem(503, "shutting_down", **{"retry-after": "7"}), answer(item()))
    with server.client(patience=30) as client:
        client.get(ID)
    assert server.time.slept == [7]


def test_a_retry_by_hand_is_never_repeated() -> None:
    server = Server(httpx2.ReadError("reset"))
    with server.client() as client, pytest.raises(ServerUnavailable):
        client.retry(ID)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (problem(422, "unknown_type"), UnknownType),
        (problem(422, "invalid_params"), InvalidParams),
        (problem(409, "key_conflict"), KeyConflict),
        (problem(404, "not_found"), NotFound),
        (problem(500, "error"), PenstockError),
        (problem(418, "a_code_of_the_future"), Refused),
        (httpx2.Response(404, text="nginx"), PenstockError),
        (httpx2.Response(404, text="{}", headers={"content-type": "application/problem+json"}), PenstockError),
        (answer(Problem(type="t", title="t", status=404, code="not_found"), 404), PenstockError),
        (httpx2.Response(302, headers={"location": "https://login.test"}), PenstockError),
        (httpx2.Response(413, text="nginx"), TooLarge),
        (httpx2.Response(200, text="<html>"), PenstockError),
    ],
)
def test_what_is_refused_is_raised_at_once_as_its_own_error(given: httpx2.Response, kind: type[PenstockError]) -> None:
    server = Server(given)
    with server.client() as client, pytest.raises(kind) as caught:
        client.submit("add")
    assert type(caught.value) is kind
    assert len(server.requests) == 1


def test_an_error_has_the_servers_words() -> None:
    server = Server(problem(422, "unknown_type", "no type 'ad'; did you mean 'add'?"))
    with server.client() as client, pytest.raises(UnknownType, match="did you mean"):
        client.submit("ad")


def test_an_unavailable_store_keeps_its_own_class_when_patience_ends() -> None:
    server = Server(problem(503, "store_unavailable", "disk full"))
    with server.client(patience=0) as client, pytest.raises(StoreUnavailable, match="disk full"):
        client.submit("add")


def test_a_body_says_only_what_was_said() -> None:
    assert set(body_of({"type": "add", "params": {"a": 1}}, {})) == {"type", "params"}


def test_every_option_reaches_the_wire() -> None:
    spec: JobSpec = {
        "type": "add",
        "params": {"a": 1},
        "queue": "q",
        "priority": 9,
        "delay": timedelta(minutes=1),
        "retry": Retry.none(),
        "timeout": None,
        "expires_at": NOW,
        "tags": ["x"],
        "key": "k",
    }
    read = msgspec.json.decode(msgspec.json.encode(body_of(spec, {"f": "upload"})), type=SubmitRequest)
    assert (read.queue, read.priority, read.delay_seconds, read.tags) == ("q", 9, 60.0, ("x",))
    assert (read.retry_policy, read.timeout_seconds, read.expires_at) == (Retry.none(), None, NOW)
    assert (read.inputs, read.idempotency_key) == ({"f": "upload"}, "k")


def test_a_job_that_cannot_be_written_is_refused_before_it_is_sent() -> None:
    server = Server(answer(item()))
    with server.client() as client:
        with pytest.raises(InvalidParams, match="JSON"):
            client.submit("add", {"a": object()})
        with pytest.raises(Invalid, match="time zone"):
            client.submit("add", scheduled_at=datetime(2030, 1, 1))  # noqa: DTZ001
        with pytest.raises(Invalid, match="list of words"):
            client.submit("add", tags="red")
    assert server.requests == []


def test_inputs_are_uploaded_once_however_often_the_submit_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_bytes(b"so much depends")
    upload = answer(Upload("u1", 15, "d", "text/plain"), 201)
    server = Server(upload, unreachable(), answer(item(), 201))
    with server.client() as client:
        client.submit("count", inputs={"poem.txt": path})
    first, second, third = server.requests
    assert (first.url.path, first.content, first.headers["content-type"]) == (
        "/v1/uploads",
        b"so much depends",
        "text/plain",
    )
    assert second.content == third.content
    assert msgspec.json.decode(third.content)["inputs"] == {"poem.txt": "u1"}


def accepted(request: httpx2.Request) -> httpx2.Response:
    jobs = msgspec.json.decode(request.content)["jobs"]
    answers = tuple(
        BatchAnswer(index, JobId(str(one["params"]["n"])), State.QUEUED, True) for index, one in enumerate(jobs)
    )
    return answer(BatchResponse(len(jobs), 0, answers))


def numbered(count: int) -> Iterator[JobSpec]:
    return ({"type": "add", "params": {"n": n}} for n in range(count))


def test_many_jobs_go_in_batches_and_are_answered_in_order() -> None:
    server = Server(accepted)
    with server.client() as client:
        answers = client.submit_many(numbered(2 * BATCH_JOBS + 1))
    assert len(server.requests) == 3
    assert [(one.index, one.id) for one in answers] == [(n, str(n)) for n in range(2 * BATCH_JOBS + 1)]


def test_a_batch_above_the_servers_limit_goes_in_halves() -> None:
    def at_most_three(request: httpx2.Request) -> httpx2.Response:
        small = len(msgspec.json.decode(request.content)["jobs"]) <= 3
        return accepted(request) if small else problem(413, "too_large")

    server = Server(at_most_three)
    with server.client() as client:
        answers = client.submit_many(numbered(10))
    assert [(one.index, one.id) for one in answers] == [(n, str(n)) for n in range(10)]


def test_a_batch_that_met_trouble_is_sent_again_with_the_same_key() -> None:
    server = Server(httpx2.ReadError("reset"), accepted)
    with server.client() as client:
        client.submit_many(numbered(3))
    first, second = server.bodies
    assert first == second
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


def test_each_batch_has_a_key_of_its_own() -> None:
    server = Server(accepted)
    with server.client() as client:
        client.submit_many(numbered(2 * BATCH_JOBS + 1))
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 3


def test_when_the_server_goes_away_in_the_middle_the_answers_given_are_told() -> None:
    server = Server(accepted, unreachable())
    with server.client(patience=1) as client, pytest.raises(ServerUnavailable) as caught:
        client.submit_many(numbered(BATCH_JOBS + 1))
    answers = caught.value.details["answers"]
    assert isinstance(answers, list)
    assert len(answers) == BATCH_JOBS


def test_batches_are_bounded_by_size_and_lose_nothing() -> None:
    bodies = [msgspec.Raw(b"x" * (1 << 20)) for _ in range(10)]
    runs = list(batches(bodies))
    assert [body for run in runs for body in run] == bodies
    assert [len(run) for run in runs] == [4, 4, 2]
    assert list(batches([])) == []


def test_waiting_asks_the_server_to_hold_the_answer_until_the_job_ends() -> None:
    server = Server(answer(item()), answer(item(state=State.SUCCEEDED)))
    with server.client() as client:
        assert client.wait(ID, timeout=30).state is State.SUCCEEDED
    assert server.requests[0].url.params["wait"] == "20.0"


def test_waiting_ends_in_time_and_says_why_the_job_waits() -> None:
    server = Server(answer(item(reason="no worker runs this type")))
    with server.client() as client, pytest.raises(WaitTimeout, match=r"queued .no worker runs this type. after 3 s"):
        client.wait(ID, timeout=3)
    assert 2.5 < sum(server.time.slept) <= 3.2


def test_a_job_that_goes_on_is_not_taken_for_one_that_ended() -> None:
    """`except JobEnded: refund()` must not run."""
    with Server(answer(item())).client() as client, pytest.raises(WaitTimeout) as told:
        client.wait(ID, timeout=0)
    assert not isinstance(told.value, JobEnded)


def test_waiting_outlives_a_server_that_restarts() -> None:
    server = Server(unreachable(), answer(item(state=State.FAILED)))
    with server.client() as client:
        assert client.wait(ID, timeout=timedelta(seconds=10)).state is State.FAILED


def test_waiting_gives_up_on_an_absent_server_when_its_own_time_is_over() -> None:
    server = Server(unreachable())
    with server.client(patience=600) as client, pytest.raises(Unavailable):
        client.wait(ID, timeout=2)
    assert sum(server.time.slept) <= 2


def test_a_list_follows_its_cursor_to_the_end() -> None:
    server = Server(answer(JobPage((item(), item()), "c1")), answer(JobPage((item(),), None)))
    with server.client() as client:
        assert len(list(client.list(state=State.FAILED, type="add", page_size=2))) == 3
    first, second = (dict(request.url.params) for request in server.requests)
    assert first == {"state": "failed", "type": "add", "limit": "2"}
    assert second == first | {"cursor": "c1"}


async def test_the_async_list_does_the_same() -> None:
    server = Server(answer(JobPage((item(), item()), "c1")), answer(JobPage((item(),), None)))
    async with server.async_client() as client:
        assert len([job async for job in client.list()]) == 3


def test_an_output_is_compared_with_its_digest(tmp_path: Path) -> None:
    done = item(state=State.SUCCEEDED, outputs=(FILE,))
    server = Server(answer(done), httpx2.Response(200, content=b"hello"))
    with server.client() as client:
        assert client.output(ID, "a.txt") == b"hello"

    server = Server(answer(done), httpx2.Response(200, content=b"hello"))
    with server.client() as client:
        assert client.download(ID, "a.txt", tmp_path).read_bytes() == b"hello"
    assert server.requests[-1].url.path == f"/v1/jobs/{ID}/outputs/a.txt"


def test_a_damaged_output_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    target = tmp_path / "kept.txt"
    target.write_bytes(b"before")
    server = Server(answer(item(state=State.SUCCEEDED, outputs=(FILE,))), httpx2.Response(200, content=b"hellO"))
    with server.client() as client, pytest.raises(CorruptObject, match=r"a\.txt"):
        client.download(ID, "a.txt", target)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


async def test_the_async_client_downloads_too(tmp_path: Path) -> None:
    server = Server(answer(item(state=State.SUCCEEDED, outputs=(FILE,))), httpx2.Response(200, content=b"hello"))
    async with server.async_client() as client:
        assert (await client.download(ID, "a.txt", tmp_path / "b.txt")).read_bytes() == b"hello"


def test_an_output_that_is_not_there_names_those_that_are() -> None:
    server = Server(answer(item(state=State.SUCCEEDED, outputs=(FILE,))))
    with server.client() as client, pytest.raises(NotFound, match=r"a\.txt"):
        client.output(ID, "b.txt")


def test_the_url_is_the_argument_else_the_environment_else_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    assert server_url(None) == "http://127.0.0.1:7373"
    monkeypatch.setenv("PENSTOCK_URL", "https://jobs.example/")
    assert server_url(None) == "https://jobs.example"
    assert server_url("http://other:1") == "http://other:1"
    with pytest.raises(Invalid, match="expected something like"):
        server_url("localhost:7373")


def test_the_async_client_serves_one_event_loop_after_another() -> None:
    import asyncio

    server = Server(answer(item()))
    client = server.async_client()

    async def look() -> JobItem:
        return await client.get(ID)

    assert asyncio.run(look()).id == ID
    assert asyncio.run(look()).id == ID
