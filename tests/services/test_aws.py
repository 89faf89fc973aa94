"""Calls to AWS services: what is raised when one is refused, denied, throttled, or not answered at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from penstock.aws import AwsRefusal, AwsService
from penstock.model.errors import InvalidSetting, StoreUnavailable
from servers import aws_environ
from tests.emulators import dynoxide, use_emulator

DEADLINE = timedelta(seconds=5)
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def open_service(deadline: timedelta = DEADLINE) -> AwsService:
    return await AwsService.open("dynamodb", error=StoreUnavailable, deadline=deadline)


@asynccontextmanager
async def answering(patch: pytest.MonkeyPatch, status: str, code: str) -> AsyncIterator[list[str]]:
    """A service that answers everything with one error; the actions that were asked of it."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.extend(
            line.partition(":")[2].strip() for line in head.splitlines() if line.lower().startswith("x-amz-target")
        )
        body = f'{{"__type": "com.amazonaws#{code}", "message": "told"}}'
        kind = "application/x-amz-json-1.0"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n".encode())
        writer.write(f"Connection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for name, value in aws_environ(f"http://127.0.0.1:{port}").items():
        patch.setenv(name, value)
    async with server:
        yield asked


async def test_a_refusal_has_the_code_that_aws_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    use_emulator(monkeypatch, dynoxide())
    service = await open_service()
    with pytest.raises(AwsRefusal) as refused:
        await service.call("DescribeTable", TableName="no-such-table")
    assert refused.value.code == "ResourceNotFoundException"
    await service.close()
    await service.close()


async def test_a_missing_right_names_the_action(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, "400 Bad Request", "AccessDeniedException"):
        service = await open_service()
        with pytest.raises(StoreUnavailable, match="denies dynamodb:PutItem: allow this action"):
            await service.call("PutItem", TableName="jobs", Item={})
        await service.close()


async def test_expired_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, "400 Bad Request", "ExpiredTokenException"):
        service = await open_service()
        with pytest.raises(StoreUnavailable, match="credentials"):
            await service.call("ListTables")
        await service.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("400 Bad Request", "ProvisionedThroughputExceededException"),
        ("500 Internal Server Error", "InternalServerError"),
        ("503 Service Unavailable", "ServiceUnavailable"),
    ],
)
async def test_what_may_pass_is_unavailable(monkeypatch: pytest.MonkeyPatch, status: str, code: str) -> None:
    monkeypatch.setattr("penstock.aws.ATTEMPTS", 1)
    async with answering(monkeypatch, status, code):
        service = await open_service()
        with pytest.raises(StoreUnavailable, match="ListTables") as failed:
            await service.call("ListTables")
        await service.close()
    assert failed.value.details["throttled"] == (code == "ProvisionedThroughputExceededException")


async def test_what_may_pass_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.aws.ATTEMPTS", 2)
    async with answering(monkeypatch, "503 Service Unavailable", "ServiceUnavailable") as asked:
        service = await open_service(timedelta(seconds=30))
        with pytest.raises(StoreUnavailable):
            await service.call("ListTables")
        await service.close()
    assert len(asked) == 2


async def test_silence_is_unavailable_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for name, value in aws_environ(f"http://127.0.0.1:{port}").items():
            monkeypatch.setenv(name, value)
        service = await open_service(timedelta(seconds=0.2))
        with pytest.raises(StoreUnavailable, match="did not answer ListTables"):
            await service.call("ListTables")
        release.set()
        await service.close()


async def test_without_a_region_it_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    use_emulator(monkeypatch, dynoxide())
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(InvalidSetting, match="AWS_REGION"):
        await open_service()
