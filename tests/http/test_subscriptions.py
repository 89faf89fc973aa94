"""Subscriptions over HTTP: their life, their secrets, replays, and every refusal."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from penstock.config import Settings
from penstock.config.event_settings import EventSettings, WebhookSettings
from penstock.engine import Engine
from penstock.model.events import parse_event_id, unpack_event
from penstock.model.journal import DeliveryRecord, EventRetention, Parked, ParkedState, Position, RelayState, RelayWrite
from penstock.model.notices import NoticeKind
from penstock.model.subscriptions import MOST_SUBSCRIPTIONS, SigningSecret, Subscription, WebhookSink
from penstock.store import Shard
from penstock.store.journal import relay_role
from penstock.webhooks import Receiver
from tests.emulators import ministack, use_emulator
from tests.http.api_calls import Client, Json, claim, settle, submit
from tests.relay_names import relay_name
from tests.sns_topic import EmulatedTopic
from tests.webhook_events import new_secret
from tests.webhook_sink import LocalSink, local_sink, reply

URL = "http://127.0.0.1:9/hook"
CANARY = "whsec_" + "Q2FuYXJ5" * 4


def problem(answer: httpx2.Response, status: int) -> Json:
    """Check that the answer is a problem of that status; all of it."""
    told: Json = answer.json()
    assert (answer.status_code, told["status"]) == (status, status), answer.text
    return told


def body(name: str = "orders", url: str = URL, **more: object) -> Json:
    return {"name": name, "sink": {"kind": "webhook", "url": url}, **more}


async def create(client: Client, name: str = "orders", **more: Any) -> Json:
    answer = await client.post("/v1/subscriptions", json=body(name, **more))
    assert answer.status_code == 201, answer.text
    made: Json = answer.json()
    return made


async def ask(client: Client, path: str, method: str = "POST", **body: object) -> Json:
    answer = await client.request(method, f"/v1/subscriptions/{path}", json=body)
    assert answer.status_code in {200, 201}, answer.text
    told: Json = answer.json()
    return told


@pytest.fixture
async def sink() -> AsyncIterator[LocalSink]:
    async with local_sink() as sink:
        yield sink


@pytest.fixture
def shard(engine: Engine) -> Shard:
    (shard,) = engine.store.shards()
    return shard


class TestLife:
    async def test_it_is_listed_and_shown_without_its_secret(self, client: Client) -> None:
        made = await create(client, filter={"types": ["add"], "states": ["failed"]}, include="facts", batch=10)
        secret = made.pop("secret")
        assert secret.startswith("whsec_")
        listed = (await client.get("/v1/subscriptions")).json()["subscriptions"]
        assert listed == [made]
        shown = (await client.get("/v1/subscriptions/orders")).json()
        assert {name: shown[name] for name in made} == made
        assert shown["relays"][0] | {"shard": 0, "waiting": 0, "dead": 0, "circuit": "closed"} == shown["relays"][0]

    async def test_a_repeated_creation_gives_the_same_back_and_no_secret(self, client: Client) -> None:
        key = {"idempotency-key": "once"}
        first = await client.post("/v1/subscriptions", json=body(), headers=key)
        second = await client.post("/v1/subscriptions", json=body(), headers=key)
        assert [first.status_code, second.status_code] == [201, 200]
        assert second.json() == first.json() | {"secret": None}
        assert first.headers["location"] == "/v1/subscriptions/orders"

    async def test_a_repetition_with_a_secret_of_ones_own_shows_it_no_more(self, client: Client) -> None:
        key, asked = {"idempotency-key": "once"}, body(secret=CANARY)
        await client.post("/v1/subscriptions", json=asked, headers=key)
        again = await client.post("/v1/subscriptions", json=asked, headers=key)
        assert again.status_code == 200
        assert again.json()["secret"] is None

    async def test_what_is_said_is_changed_and_the_rest_stays(self, client: Client) -> None:
        made = await create(client, filter={"tags": ["nightly"], "types": ["add"]}, batch=7, limits={"in_flight": 3})
        changed = await ask(client, "orders", "PATCH", limits={"per_second": 5})
        assert changed["limits"] == {"in_flight": 3, "per_second": 5.0}
        same = ("filter", "batch", "sink", "state", "created_at", "secrets")
        assert {name: changed[name] for name in same} == {name: made[name] for name in same}
        changed = await ask(client, "orders", "PATCH", filter={"types": None, "states": ["failed"]})
        assert changed["filter"] == {"types": None, "queues": None, "states": ["failed"], "tags": ["nightly"]}

    async def test_it_is_paused_and_resumed(self, client: Client) -> None:
        await create(client)
        assert (await ask(client, "orders/pause"))["state"] == "paused"
        assert (await ask(client, "orders/resume"))["state"] == "active"

    async def test_one_that_was_disabled_says_why_until_it_is_resumed(self, client: Client, engine: Engine) -> None:
        await create(client)
        await engine.subscriptions.disable("orders", "the sink answered 410")
        shown = (await client.get("/v1/subscriptions/orders")).json()
        assert (shown["state"], shown["reason"]) == ("disabled", "the sink answered 410")
        refused = problem(await client.post("/v1/subscriptions/orders/pause", json={}), 409)
        assert "resume" in refused["detail"]
        assert (await ask(client, "orders/resume"))["reason"] is None

    async def test_a_relay_disables_only_what_it_has_seen(self, client: Client, engine: Engine) -> None:
        await create(client)
        seen = await engine.subscriptions.find("orders")
        await ask(client, "orders", "PATCH", sink={"kind": "webhook", "url": "http://127.0.0.1:9/new"})
        await engine.subscriptions.disable("orders", "gone", seen.changed_at)
        assert (await engine.subscriptions.find("orders")).state == "active"
        await engine.subscriptions.disable("nothing", "gone")

    async def test_deleting_it_forgets_what_its_relays_wrote(self, client: Client, shard: Shard) -> None:
        await create(client)
        await log(shard, delivered("evt_1"))
        relay = await relay_name(shard)
        assert (await client.delete("/v1/subscriptions/orders")).status_code == 204
        problem(await client.get("/v1/subscriptions/orders"), 404)
        assert await shard.deliveries(relay, None, 10) == []
        await create(client)

    async def test_a_new_one_does_not_begin_where_an_earlier_one_of_its_name_was(
        self, client: Client, shard: Shard
    ) -> None:
        """A relay of the earlier one may write once more after it was deleted."""
        await create(client)
        earlier = await relay_name(shard)
        assert (await client.delete("/v1/subscriptions/orders")).status_code == 204
        await save(shard, Position(7), relay=earlier)
        await create(client)
        assert (await shard.relay_state(await relay_name(shard))).position is None


class TestSecrets:
    async def test_a_rotation_shows_a_new_secret_and_both_sign_for_a_day(
        self, client: Client, engine: Engine, sink: LocalSink
    ) -> None:
        first = (await create(client, url=sink.url))["secret"]
        rotated = await ask(client, "orders/rotate")
        assert rotated["secret"] not in (first, None)
        newest, before = rotated["secrets"]
        assert newest["valid_until"] is None
        ends = datetime.fromisoformat(before["valid_until"]) - datetime.fromisoformat(newest["created_at"])
        assert ends == timedelta(days=1)
        await ask(client, "orders/test")
        (request,) = sink.requests
        for secret in (first, rotated["secret"]):
            assert Receiver(secret).read(request.headers, request.body) == []

    async def test_a_secret_of_ones_own_is_taken(self, client: Client) -> None:
        assert (await create(client, secret=CANARY))["secret"] == CANARY
        own = new_secret()
        assert (await ask(client, "orders/rotate", secret=own))["secret"] == own

    async def test_it_is_in_no_other_answer_no_log_and_no_metric(
        self, client: Client, sink: LocalSink, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        await create(client, secret=CANARY, url=sink.url)
        answers = [
            await client.get("/v1/subscriptions"),
            await client.get("/v1/subscriptions/orders"),
            await client.patch("/v1/subscriptions/orders", json={"batch": 2}),
            await client.post("/v1/subscriptions/orders/pause", json={}),
            await client.post("/v1/subscriptions/orders/resume", json={}),
            await client.post("/v1/subscriptions/orders/test", json={}),
            await client.post("/v1/subscriptions/orders/rotate", json={}),
            await client.post("/v1/subscriptions", json=body(secret=CANARY)),
            await client.post("/v1/subscriptions", json=body("other", secret=f"{CANARY}!")),
            await client.get("/v1/subscriptions/orders/deliveries"),
            await client.get("/metrics"),
        ]
        told = "".join(one.text for one in answers) + caplog.text
        assert CANARY.removeprefix("whsec_") not in told
        assert CANARY not in json.dumps([request.headers for request in sink.requests])


class TestTest:
    async def test_it_sends_one_event_that_is_about_no_job(self, client: Client, sink: LocalSink) -> None:
        secret = (await create(client, url=sink.url))["secret"]
        outcome = await ask(client, "orders/test")
        (request,) = sink.requests
        sent = json.loads(request.body)
        assert (sent["type"], sent["id"]) == ("dev.penstock.test", outcome["event"])
        assert Receiver(secret).read(request.headers, request.body) == []
        assert outcome | {"delivered": True, "status": 204, "detail": None} == outcome

    async def test_it_tells_what_a_sink_answers_and_changes_nothing(self, client: Client, sink: LocalSink) -> None:
        await create(client, url=sink.url)
        sink.answers = [reply(500, b"no room"), reply(410, b"gone")]
        outcome = await ask(client, "orders/test")
        assert (outcome["delivered"], outcome["status"], outcome["detail"]) == (False, 500, "no room")
        assert (await ask(client, "orders/test"))["status"] == 410
        assert (await client.get("/v1/subscriptions/orders")).json()["state"] == "active"

    async def test_a_sink_that_is_not_there_is_an_outcome_too(self, client: Client) -> None:
        await create(client)
        outcome = await ask(client, "orders/test")
        assert (outcome["delivered"], outcome["status"]) == (False, None)
        assert outcome["detail"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("filter", "words"),
        [
            ({"states": ["done"]}, ["states", "done", "succeeded"]),
            ({"types": ["no type"]}, ["types", "no type"]),
            ({"queues": ["/"]}, ["queues", "/"]),
            ({"types": []}, ["types", "empty"]),
            ({"states": []}, ["states", "empty"]),
            ({"tags": []}, ["tags", "empty"]),
            ({"tenants": ["a"]}, ["tenants"]),
            ({"types": [f"t{n}" for n in range(101)]}, ["types", "100"]),
        ],
    )
    async def test_a_filter_that_cannot_fit(self, client: Client, filter: Json, words: list[str]) -> None:
        refused = problem(await client.post("/v1/subscriptions", json=body(filter=filter)), 422)
        assert all(word in refused["detail"] for word in words), refused["detail"]
        await create(client)
        problem(await client.patch("/v1/subscriptions/orders", json={"filter": filter}), 422)

    @pytest.mark.parametrize(
        "terms",
        [
            {"name": "no name"},
            {"name": "x" * 129},
            {"batch": 0},
            {"batch": 101},
            {"limits": {"in_flight": 0}},
            {"limits": {"per_second": 0}},
            {"include": "everything"},
            {"secret": "whsec_short"},
            {"secret": "hunter2"},
            {"sink": {"kind": "sns", "url": URL}},
            {"sink": {"kind": "webhook"}},
            {"webhook": URL},
        ],
    )
    async def test_terms_that_cannot_be_used(self, client: Client, terms: Json) -> None:
        refused = problem(await client.post("/v1/subscriptions", json=body() | terms), 422)
        assert next(iter(terms)) in refused["detail"]
        assert "hunter2" not in refused["detail"]

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("ftp://example.com/", ["https://"]),
            ("http://10.0.0.1/", ["10.0.0.1", "webhooks.allow"]),
            ("https://169.254.169.254/latest", ["169.254.169.254", "webhooks.allow"]),
            ("https://[::ffff:10.1.2.3]/", ["10.1.2.3", "webhooks.allow"]),
            ("https://0x0a000001/", ["10.0.0.1"]),
            ("https://user:secret@example.com/", ["user names"]),
            ("https://example.com/#part", ["fragment"]),
            ("https://nowhere.invalid/", ["nowhere.invalid"]),
        ],
    )
    async def test_a_url_that_webhooks_may_not_be_sent_to(self, client: Client, url: str, words: list[str]) -> None:
        refused = problem(await client.post("/v1/subscriptions", json=body(url=url)), 422)
        assert all(word in refused["detail"] for word in words), refused["detail"]
        await create(client)
        change = {"sink": {"kind": "webhook", "url": url}}
        problem(await client.patch("/v1/subscriptions/orders", json=change), 422)
        assert (await client.get("/v1/subscriptions/orders")).json()["sink"]["url"] == URL

    async def test_a_name_that_is_taken(self, client: Client) -> None:
        await create(client)
        assert "orders" in problem(await client.post("/v1/subscriptions", json=body()), 409)["detail"]
        other_key = await client.post("/v1/subscriptions", json=body(), headers={"idempotency-key": "k"})
        assert problem(other_key, 409)["code"] == "conflict"

    async def test_another_body_under_the_same_key(self, client: Client) -> None:
        key = {"idempotency-key": "once"}
        await client.post("/v1/subscriptions", json=body(), headers=key)
        for other in (body(batch=2), body("other")):
            refused = problem(await client.post("/v1/subscriptions", json=other, headers=key), 409)
            assert refused["code"] == "key_conflict"

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", ""),
            ("PATCH", ""),
            ("DELETE", ""),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/test"),
            ("POST", "/rotate"),
            ("GET", "/deliveries"),
        ],
    )
    async def test_a_name_that_is_unknown(self, client: Client, method: str, path: str) -> None:
        answer = await client.request(method, f"/v1/subscriptions/nothing{path}", json={})
        assert "nothing" in problem(answer, 404)["detail"]

    async def test_more_than_there_may_be(self, client: Client, engine: Engine) -> None:
        now = datetime.now(UTC)
        secrets = (SigningSecret(text=CANARY, created_at=now),)
        one = Subscription(name="x", sink=WebhookSink(URL), secrets=secrets, created_at=now, changed_at=now)
        many = {f"n{n}": encode(replace(one, name=f"n{n}")) for n in range(MOST_SUBSCRIPTIONS)}
        await engine.catalog.put_notices(NoticeKind.SUBSCRIPTION, many)
        refused = problem(await client.post("/v1/subscriptions", json=body()), 422)
        assert "1,000" in refused["detail"]

    async def test_the_store_decides_between_two_that_come_at_once(self, client: Client, engine: Engine) -> None:
        answers = await asyncio.gather(*(client.post("/v1/subscriptions", json=body(batch=n)) for n in range(1, 6)))
        assert sorted(one.status_code for one in answers) == [201, 409, 409, 409, 409]


class TestWithoutAJournal:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, events=EventSettings(keep=False))

    async def test_there_are_no_subscriptions(self, client: Client) -> None:
        refused = problem(await client.post("/v1/subscriptions", json=body()), 409)
        assert refused["code"] == "events_not_kept"
        assert "events.keep" in refused["detail"]


class TestAllowedNetworks:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, webhooks=WebhookSettings(allow=("10.0.0.0/8",)))

    async def test_a_network_of_ones_own_is_allowed_by_its_setting(self, client: Client) -> None:
        await create(client, url="https://10.1.2.3/hook")
        problem(await client.post("/v1/subscriptions", json=body("other", "https://192.168.0.1/")), 422)


def encode(one: Subscription) -> bytes:
    return msgspec.json.encode(one)


def delivered(first: str, at: datetime | None = None, *, ok: bool = True) -> DeliveryRecord:
    return DeliveryRecord(at=at or datetime.now(UTC), delivered=ok, first=first, last=first, events=1, status=204)


async def save(shard: Shard, position: Position | None, relay: str | None = None, **write: Any) -> None:
    """Write as the relay of `orders` does."""
    relay = relay or await relay_name(shard)
    fence = await shard.acquire_role(relay_role(relay), "test", timedelta(minutes=1))
    assert fence is not None
    assert await shard.save_relay(relay, fence, RelayWrite(state=RelayState(position=position), **write))


async def log(shard: Shard, *records: DeliveryRecord) -> None:
    await save(shard, Position(1), log=records)


async def advance(shard: Shard) -> None:
    """Bring the relay to the end of the journal."""
    await save(shard, Position(await shard.number_entries() + 1))


async def waiting(shard: Shard) -> list[Parked]:
    return await shard.read_parked(await relay_name(shard), ParkedState.WAITING, 100_000)


class TestLog:
    async def test_it_is_read_newest_first_page_by_page(self, client: Client, shard: Shard) -> None:
        await create(client)
        start = datetime(2026, 11, 18, tzinfo=UTC)
        await log(shard, *(delivered(f"evt_{n}", start + timedelta(seconds=n), ok=False) for n in range(12)))
        found: list[str] = []
        before = ""
        while True:
            page = (await client.get(f"/v1/subscriptions/orders/deliveries?limit=5{before}")).json()
            found += [one["first"] for one in page["deliveries"]]
            if page["before"] is None:
                break
            before = f"&before={page['before'].replace('+', '%2B')}"
        assert found == [f"evt_{n}" for n in reversed(range(12))]

    @pytest.mark.parametrize(
        "before", ["null", "0.5", "17", "yesterday", "2026-11-18T00:00:00", "5786-11-29T23:33:40Z"]
    )
    async def test_what_is_no_instant_is_refused(self, client: Client, before: str) -> None:
        await create(client)
        answer = await client.get("/v1/subscriptions/orders/deliveries", params={"before": before})
        assert "before" in problem(answer, 422)["detail"]

    async def test_those_of_one_instant_are_on_one_page(self, client: Client, shard: Shard) -> None:
        await create(client)
        start = datetime(2026, 11, 18, tzinfo=UTC)
        at = [start + timedelta(seconds=n) for n in (0, 1, 1, 1, 2)]
        await log(shard, *(delivered(f"evt_{n}", one, ok=False) for n, one in enumerate(at)))
        found: list[str] = []
        sizes: list[int] = []
        before, page = "", {}
        for _ in range(3):
            page = (await client.get(f"/v1/subscriptions/orders/deliveries?limit=2{before}")).json()
            found += [one["first"] for one in page["deliveries"]]
            sizes.append(len(page["deliveries"]))
            before = f"&before={page['before']}"
        assert (sorted(found), sizes) == ([f"evt_{n}" for n in range(5)], [1, 3, 1])
        assert page["before"] is None

    async def test_a_report_adds_up_what_was_delivered_and_what_is_left(self, client: Client, shard: Shard) -> None:
        await create(client)
        await submit(client)
        await log(shard, delivered("evt_1"), delivered("evt_2", ok=False))
        (relay,) = (await client.get("/v1/subscriptions/orders")).json()["relays"]
        assert (relay["delivered"], relay["failed"]) == (1, 1)
        assert relay["lag_entries"] > 0
        await advance(shard)
        (relay,) = (await client.get("/v1/subscriptions/orders")).json()["relays"]
        assert (relay["lag_entries"], relay["lag_seconds"]) == (0, 0.0)


class TestReplays:
    async def test_the_events_of_a_span_that_fit_the_filter_are_parked_again(
        self, client: Client, shard: Shard
    ) -> None:
        await submit(client, "add", params={"a": 1})
        since = datetime.now(UTC) - timedelta(minutes=1)
        job = await submit(client, tags=["nightly"])
        await submit(client, tags=["daily"])
        for one in await claim(client):
            await settle(client, one)
        await create(client, filter={"types": ["other"], "tags": ["nightly"], "states": ["succeeded", "running"]})
        await advance(shard)
        assert await ask(client, "orders/replay", **{"from": since.isoformat()}) == {"events": 2, "more": False}
        parked = await waiting(shard)
        events = [unpack_event(one.event) for one in parked]
        assert [(event.job, event.after) for event in events] == [(job["id"], "running"), (job["id"], "succeeded")]
        assert [parse_event_id(event.id) for event in events] == [(one.job, one.version) for one in parked]

    async def test_what_the_relay_has_not_come_to_is_left_to_it(self, client: Client, shard: Shard) -> None:
        await create(client)
        job = await submit(client)
        since = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
        assert (await ask(client, "orders/replay", **{"from": since}))["events"] == 0
        event = f"evt_{job['id'].replace('-', '')}_1"
        assert (await ask(client, "orders/replay", event=event))["events"] == 0
        await advance(shard)
        assert (await ask(client, "orders/replay", event=event))["events"] == 1
        (parked,) = await waiting(shard)
        assert (parked.job, parked.version, parked.attempts) == (job["id"], 1, 0)

    async def test_all_that_is_dead_is_delivered_again(self, client: Client, shard: Shard) -> None:
        await create(client)
        job = await submit(client)
        dead = Parked(job=job["id"], version=1, event=b"{}", state=ParkedState.DEAD, attempts=10, error="refused")
        await save(shard, None, parked=[dead])
        assert (await client.get("/v1/subscriptions/orders")).json()["relays"][0]["dead"] == 1
        assert await ask(client, "orders/replay", dead=True) == {"events": 1, "more": False}
        (again,) = await waiting(shard)
        assert (again.attempts, again.error) == (0, None)
        assert (await ask(client, "orders/replay", dead=True))["events"] == 0

    async def test_one_that_is_dead_is_found_by_its_id(self, client: Client, shard: Shard) -> None:
        await create(client)
        job = await submit(client)
        dead = Parked(job=job["id"], version=9, event=b"kept", state=ParkedState.DEAD, attempts=10)
        await save(shard, None, parked=[dead])
        event = f"evt_{job['id'].replace('-', '')}_9"
        assert (await ask(client, "orders/replay", event=event))["events"] == 1
        assert [one.event for one in await waiting(shard)] == [b"kept"]

    @pytest.mark.parametrize(
        "asked",
        [
            {},
            {"dead": False},
            {"dead": True, "event": "evt_1"},
            {"to": "2026-01-01T00:00:00Z"},
            {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
            {"from": "yesterday"},
            {"event": "evt_1"},
        ],
    )
    async def test_a_request_that_cannot_be_understood(self, client: Client, asked: Json) -> None:
        await create(client)
        problem(await client.post("/v1/subscriptions/orders/replay", json=asked), 422)

    async def test_an_event_that_there_is_not(self, client: Client, shard: Shard) -> None:
        await create(client)
        job = await submit(client)
        await advance(shard)
        for event in (f"evt_{job['id'].replace('-', '')}_7", "evt_0190a6e2000070008000000000000000_1"):
            problem(await client.post("/v1/subscriptions/orders/replay", json={"event": event}), 404)

    async def test_a_disabled_subscription_says_how_to_resume_it(self, client: Client, engine: Engine) -> None:
        await create(client)
        await engine.subscriptions.disable("orders", "the sink answered 410")
        refused = problem(await client.post("/v1/subscriptions/orders/replay", json={"dead": True}), 409)
        assert "penstock subscriptions resume orders" in refused["detail"]

    async def test_a_span_that_is_gone(self, client: Client, shard: Shard) -> None:
        await create(client)
        job = await submit(client)
        await advance(shard)
        now = await shard.now()
        await shard.prune_journal(EventRetention(events=timedelta(0)), 1000)
        await submit(client)
        long_ago = {"from": (now - timedelta(days=8)).isoformat()}
        refused = problem(await client.post("/v1/subscriptions/orders/replay", json=long_ago), 410)
        assert "retention.events_seconds" in refused["detail"]
        event = {"event": f"evt_{job['id'].replace('-', '')}_1"}
        problem(await client.post("/v1/subscriptions/orders/replay", json=event), 410)

    async def test_a_span_with_too_many_events(
        self, client: Client, shard: Shard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.engine.replays.MOST_REPLAYED", 3)
        await create(client)
        for _ in range(4):
            await submit(client)
        await advance(shard)
        span = {"from": (datetime.now(UTC) - timedelta(minutes=1)).isoformat()}
        refused = problem(await client.post("/v1/subscriptions/orders/replay", json=span), 422)
        assert "shorter" in refused["detail"]
        assert await waiting(shard) == []


class TestTopics:
    @pytest.fixture
    def topic(self, monkeypatch: pytest.MonkeyPatch) -> EmulatedTopic:
        use_emulator(monkeypatch, ministack())
        topic = EmulatedTopic(ministack())
        topic.subscribe()
        return topic

    async def test_a_topic_is_a_sink_without_a_secret_and_can_be_tested(
        self, client: Client, topic: EmulatedTopic
    ) -> None:
        asked = {"name": "orders", "sink": {"kind": "sns", "topic": topic.arn}}
        made = await client.post("/v1/subscriptions", json=asked)
        assert (made.status_code, made.json()["secret"]) == (201, None)
        assert (await ask(client, "orders/test"))["delivered"] is True
        (message,) = topic.messages()
        assert msgspec.json.decode(message["Body"])["type"] == "dev.penstock.test"
        rotated = await client.post("/v1/subscriptions/orders/rotate", json={})
        assert "SNS signs" in problem(rotated, 409)["detail"]

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ({"sink": {"kind": "sns", "topic": "arn:aws:s3:::bucket"}}, "not an SNS topic"),
            ({"sink": {"kind": "sns", "topic": "arn:aws:sns:us-east-1:123456789012:none"}}, "there is no topic"),
            ({"sink": {"kind": "sns", "topic": "x"}, "secret": CANARY}, "secret"),
        ],
    )
    async def test_what_is_no_topic_is_refused(
        self, client: Client, topic: EmulatedTopic, more: Json, said: str
    ) -> None:
        refused = await client.post("/v1/subscriptions", json={"name": "orders", **more})
        assert said in problem(refused, 422)["detail"]
