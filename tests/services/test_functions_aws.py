"""Functions over DynamoDB, SQS and SNS: a job from its request to its end, swept, and told to a topic."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.engine import Engine
from penstock.functions import handlers
from penstock.functions.host import FunctionHost, read_settings
from penstock.webhooks import read_events
from tests.emulators import dynoxide, ministack, use_emulator
from tests.gateway import FunctionClient, sweep_until_queued
from tests.services.engine_steps import LONG, claim, success, worker
from tests.sns_topic import EmulatedTopic, make_client


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[FunctionHost]:
    use_emulator(monkeypatch, ministack())
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynoxide().endpoint)
    name = uuid.uuid4().hex[:8]
    queue = make_client("sqs", ministack().endpoint).create_queue(QueueName=f"wake-{name}")["QueueUrl"]
    variables = {
        "PENSTOCK_STORE_URL": f"dynamodb://jobs-{name}",
        "PENSTOCK_BROKER_URL": f"sqs://jobs-{name}",
        "PENSTOCK_SERVER_DATA": str(tmp_path),
        "PENSTOCK_SERVER_ALLOW_UNKNOWN_TYPES": "true",
        "PENSTOCK_FUNCTIONS_WAKE_QUEUE": queue,
    }
    host = FunctionHost(read_settings(variables))
    yield host
    host.close()


async def run_job(engine: Engine) -> int:
    """Take a ticket, claim its job and settle it, as a worker does."""
    await engine.worker_api.join(worker("w1", "mail"), ())
    claims = await claim(engine, "w1", "mail", wait=LONG)
    await engine.worker_api.settle([success(one) for one in claims])
    return len(claims)


def test_a_job_is_added_run_and_told_to_a_topic(host: FunctionHost) -> None:
    client = FunctionClient(host)
    topic = EmulatedTopic(ministack())
    topic.subscribe({"state": ["succeeded"]})
    made = client.ask(
        "rest", "POST", "/v1/subscriptions", {"name": "orders", "sink": {"kind": "sns", "topic": topic.arn}}
    )
    assert made["statusCode"] == 201, made
    job = client.add(params={"to": "you"})
    assert host.run(run_job) == 1
    found = client.ask("query", "GET", f"/v1/jobs/{job['id']}")
    assert found["body"]["state"] == "succeeded"
    published = handlers.publish_on(host, {}, None)
    assert published["unfinished"] == ()
    (message,) = topic.messages()
    (received,) = read_events(message["Body"])
    assert (received.event.job, received.event.version) == (job["id"], 3)


def test_a_delayed_job_gets_its_ticket_by_a_sweep(host: FunctionHost) -> None:
    client = FunctionClient(host)
    job = client.add(delay_seconds=1)
    swept = sweep_until_queued(client, job["id"], lambda: handlers.sweep_on(host, None))
    assert swept["wake_seconds"] is not None
    assert host.run(run_job) == 1
    assert client.ask("cancel", "POST", f"/v1/jobs/{job['id']}/cancel")["body"]["state"] == "succeeded"
