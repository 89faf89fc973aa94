"""A topic of SNS for tests: of an emulator, behind a sink that passes calls on and answers otherwise when it is told.

A queue subscribes to the topic, so that what arrives is what a subscriber gets.
"""

import asyncio
import json
import os
import uuid
from functools import cache
from typing import Any

import pytest
from botocore.session import get_session

from servers.emulators import REGION, Emulator
from tests.emulators import use_emulator
from tests.webhook_sink import Answer, LocalSink, SinkRequest, reply


@cache
def make_client(service: str, endpoint: str) -> Any:
    """A client of the emulator, for all tests of this process: each takes a while to make."""
    session = get_session()
    session.set_credentials("penstock", "penstock-secret")
    return session.create_client(service, region_name=REGION, endpoint_url=endpoint)


class EmulatedTopic:
    """A new topic, and the queue that gets all its messages."""

    def __init__(self, server: Emulator, *, is_fifo: bool = False) -> None:
        self._server = server
        self._sns, self._sqs = (make_client(name, server.endpoint) for name in ("sns", "sqs"))
        suffix = ".fifo" if is_fifo else ""
        name, extra = f"t-{uuid.uuid4().hex[:12]}{suffix}", {"FifoTopic": "true"} if is_fifo else {}
        self.arn: str = self._sns.create_topic(Name=name, Attributes=extra)["TopicArn"]
        self._queue = self._sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if is_fifo else {})[
            "QueueUrl"
        ]

    def subscribe(self, wanted: dict[str, Any] | None = None) -> None:
        """Let the queue get what its filter wants; everything without one."""
        named = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        attributes = {"RawMessageDelivery": "true"} | ({} if wanted is None else {"FilterPolicy": json.dumps(wanted)})
        self._sns.subscribe(
            TopicArn=self.arn, Protocol="sqs", Endpoint=named["Attributes"]["QueueArn"], Attributes=attributes
        )

    def delete(self) -> None:
        self._sns.delete_topic(TopicArn=self.arn)

    def messages(self) -> list[dict[str, Any]]:
        """Take the messages that have come so far."""
        found: list[dict[str, Any]] = []
        while taken := self._take():
            found += taken
        return found

    def _take(self) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(
            QueueUrl=self._queue,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
            WaitTimeSeconds=0,
        )
        taken: list[dict[str, Any]] = answer.get("Messages", [])
        for one in taken:
            self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=one["ReceiptHandle"])
        return taken


def reach_through(patch: pytest.MonkeyPatch, sink: LocalSink, server: Emulator) -> None:
    """Let clients that are opened from now on reach the emulator through the sink, which passes on what it is asked."""
    use_emulator(patch, server)
    patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{sink.port}")
    sink.usual = lambda request: pass_on(request, server.port)
    assert "AWS_PROFILE" not in os.environ


def pass_on(request: SinkRequest, port: int) -> Answer:
    """What the server at the port answers."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        reader, there = await asyncio.open_connection("127.0.0.1", port)
        headers = {**request.headers, "connection": "close", "content-length": str(len(request.body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        there.write(f"{request.line}\r\n{head}\r\n".encode() + request.body)
        writer.write(await reader.read())
        there.close()

    return answer


def refusal(code: str, text: str, status: int = 400) -> Answer:
    """An error as SNS answers it."""
    body = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error></ErrorResponse>"
    )
    return reply(status, body.encode(), content_type="text/xml")


def entries_answer(taken: list[int], refused: dict[int, str]) -> Answer:
    """An answer to PublishBatch that takes these entries and refuses those, by number."""
    good = "".join(f"<member><Id>{one}</Id><MessageId>{uuid.uuid4()}</MessageId></member>" for one in taken)
    bad = "".join(
        f"<member><Id>{one}</Id><Code>{code}</Code><Message>told</Message><SenderFault>true</SenderFault></member>"
        for one, code in refused.items()
    )
    result = f"<Successful>{good}</Successful><Failed>{bad}</Failed>"
    body = f"<PublishBatchResponse><PublishBatchResult>{result}</PublishBatchResult></PublishBatchResponse>"
    return reply(200, body.encode(), content_type="text/xml")
