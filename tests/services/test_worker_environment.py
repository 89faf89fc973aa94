"""What handlers find around them: nothing that Penstock connects with, and an SDK that knows its way home."""

import asyncio
from pathlib import Path

import pytest

from penstock.model.keys import new_id, new_secret, token_of
from tests.services.running_worker import run_worker
from tests.services.scripted_server import ScriptedServer, http_response

KEY = token_of(new_id(lambda count: b"k" * count), new_secret(lambda count: b"s" * count))
SECRET = "hunter2"
JOB = "0190a6e2-0000-7000-8000-000000000000"
ITEM = (
    b'{"id":"%b","type":"add","queue":"add","state":"queued","reason":null,"priority":5,"params":{},"result":null,'
    b'"error":null,"progress":null,"attempt":0,"max_attempts":1,"fence":0,"retry_policy":{},"timeout_seconds":null,'
    b'"scheduled_at":"2026-01-01T00:00:00Z","created_at":"2026-01-01T00:00:00Z","started_at":null,'
    b'"completed_at":null,"expires_at":null,"cancel_requested":false,"tags":[],"inputs":[],"outputs":[],'
    b'"worker":null,"retry_of":null}' % JOB.encode()
)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker is told by its environment."""
    for name, value in {
        "PENSTOCK_KEY": KEY,
        "PENSTOCK_WORKER_KEY": KEY,
        "PENSTOCK_STORE_URL": f"postgresql://jobs:{SECRET}@db/jobs",
        "PENSTOCK_BROKER_URL": f"redis://:{SECRET}@broker/0",
        "PENSTOCK_OBJECTS_URL": f"s3://{SECRET}@bucket",
        "PENSTOCK_CONFIG": f"/etc/{SECRET}.toml",
        "OF_THE_USER": "kept",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("told")
async def test_neither_handlers_nor_what_they_start_inherit_what_their_worker_connects_with(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1, url="http://server.test:7373", key=KEY) as at:
        seen = await at.worker_api.result(at.worker_api.submit("surroundings"))
        assert isinstance(seen, list)
        assert seen.count("OF_THE_USER=kept") == 3
        assert {one for one in seen if one.startswith("PENSTOCK_")} == {"PENSTOCK_URL=http://server.test:7373"}
        assert not [one for one in seen if KEY in one or SECRET in one]


@pytest.mark.usefixtures("told")
async def test_a_command_finds_no_more_than_its_job(tmp_path: Path) -> None:
    async with run_worker(tmp_path, executors=1, key=KEY) as at:
        job = at.worker_api.submit("env")
        await at.worker_api.outcome(job)
        seen = [text for _, text in at.worker_api.text(job)]
        assert any(one.startswith("PENSTOCK_JOB_ID=") for one in seen)
        assert not [one for one in seen if KEY in one or SECRET in one or "PENSTOCK_URL" in one]


async def test_the_sdk_in_a_handler_talks_to_its_workers_server_and_shows_its_key_there_alone(tmp_path: Path) -> None:
    home, elsewhere = (ScriptedServer(*[http_response(201, ITEM, "application/json")] * 2) for _ in range(2))
    servers = [await asyncio.start_server(one.serve, "127.0.0.1", 0) for one in (home, elsewhere)]
    here, there = (f"http://127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in servers)
    async with run_worker(tmp_path, executors=1, url=here, key=KEY) as at:
        assert await at.worker_api.result(at.worker_api.submit("submit_child", elsewhere=there)) == [JOB, JOB]
    assert [b"POST /v1/jobs " in one and KEY.encode() in one for one in home.requests] == [True, True]
    assert [b"POST /v1/jobs " in one and KEY.encode() in one for one in elsewhere.requests] == [False]
    for server in servers:
        server.close()
