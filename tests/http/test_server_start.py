"""While a server imports its app: nothing is refused, or accepted, by the types of an earlier life."""

import pytest

from penstock.engine import Engine
from penstock.model.errors import Starting
from tests.http.api_calls import Client, problem

SCHEDULE = {"name": "hourly", "type": "add", "params": {"a": 1}, "interval": 3600}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", {"type": "add", "params": {"a": 1}}),
        ("/v1/jobs", {"type": "new"}),
        ("/v1/jobs", {"type": "add", "params": {"a": 1, "new": 2}}),
        ("/v1/jobs", {"type": "add", "params": {"a": 1}, "interval": 60}),
        ("/v1/jobs/batch", {"jobs": [{"type": "add", "params": {"a": 1}}, {"type": "new"}]}),
        ("/v1/schedules", SCHEDULE),
    ],
)
async def test_submits_are_answered_later_until_the_types_are_known(
    client: Client, engine: Engine, path: str, body: object
) -> None:
    engine.catalog.expecting = "shop:app"
    answer = await client.post(path, json=body)
    assert "shop:app" in problem(answer, 503, "starting")
    assert answer.headers["retry-after"] == "1"
    problem(await client.get("/readyz"), 503, "starting")
    assert (await client.get("/healthz")).status_code == 200
    engine.catalog.expecting = None
    assert (await client.get("/readyz")).status_code == 200
    assert (await client.post(path, json=body)).status_code in {200, 201, 422}


async def test_no_tick_is_judged_by_the_types_of_an_earlier_life(client: Client, engine: Engine) -> None:
    assert (await client.post("/v1/schedules", json=SCHEDULE)).status_code == 201
    engine.catalog.expecting = "shop:app"
    problem(await client.post("/v1/schedules/hourly/trigger"), 503, "starting")
    with pytest.raises(Starting):
        await engine.ticks.tick([])
