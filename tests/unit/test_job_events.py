"""Job events: their ids, and their CloudEvents as another library reads them."""

import json

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.events.cloudevents import OutgoingEvent, batch_id, encode_batch, encode_event
from penstock.model.errors import Invalid
from penstock.model.events import event_id, parse_event_id
from penstock.model.ids import JobId
from penstock.model.wire.cloudevents import CONTENT_TYPE
from tests.webhook_events import AT, event, item, new_job, outgoing


@given(st.uuids(), st.integers(1, 10**10 - 1))
def test_an_event_id_gives_its_job_and_version_back(job: object, version: int) -> None:
    text = event_id(JobId(str(job)), version)
    assert parse_event_id(text) == (str(job), version)
    assert "." not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "evt_",
        "evt_0190a6e2_1",
        f"evt_{'0' * 32}_0",
        f"evt_{'0' * 32}_01",
        f"evt_{'0' * 32}_-1",
        f"evt_{'0' * 32}_1\n",
        f"evt_{'G' * 32}_1",
        f"evt_{'0' * 32}_{'9' * 11}",
    ],
)
def test_a_text_that_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not an event id"):
        parse_event_id(text)


def test_another_library_reads_the_cloud_event() -> None:
    one = outgoing(version=7)
    read = from_http_event(HTTPMessage({"content-type": CONTENT_TYPE}, encode_event(one, "https://jobs.example")))
    assert read.get_specversion() == "1.0"
    assert read.get_id() == one.event.id == f"evt_{one.event.job.replace('-', '')}_7"
    assert read.get_source() == "https://jobs.example"
    assert read.get_type() == "dev.penstock.job.succeeded"
    assert read.get_subject() == read.get_extension("partitionkey") == one.event.job
    assert read.get_extension("sequence") == "0000000007"
    assert read.get_time() == AT
    data = read.get_data()
    assert isinstance(data, dict)
    assert data["event"]["version"] == 7
    assert data["job"]["params"] == {"rows": 500, "title": "Ä €"}


def test_another_library_reads_each_event_of_a_batch() -> None:
    sent = [outgoing(version) for version in (1, 2, 3)]
    texts = [json.dumps(one).encode() for one in json.loads(encode_batch(sent, "penstock"))]
    read = [from_http_event(HTTPMessage({"content-type": CONTENT_TYPE}, text)) for text in texts]
    assert [one.get_id() for one in read] == [one.event.id for one in sent]


def test_facts_only_leave_the_job_out() -> None:
    assert set(json.loads(encode_event(OutgoingEvent(event()), "penstock"))["data"]) == {"event"}


def test_a_job_that_is_json_already_is_sent_as_it_is() -> None:
    job = new_job()
    ready = Raw(msgspec.json.encode(item(job)))
    sent = [OutgoingEvent(event(job), one) for one in (ready, item(job))]
    assert encode_event(sent[0], "penstock") == encode_event(sent[1], "penstock")


def test_a_batch_of_the_same_events_has_the_same_id() -> None:
    ids = [event().id for _ in range(3)]
    assert batch_id(ids) == batch_id(list(ids))
    assert len({batch_id(ids), batch_id(ids[:2]), batch_id(ids[::-1])}) == 3
