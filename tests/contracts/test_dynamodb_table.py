"""The table of a shard: made and completed by `penstock db`, examined by the doctor, which changes nothing."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.aws import AwsService
from penstock.backends import engine_extras, open_shard
from penstock.cli import ROOT
from penstock.cli.doctor.backends import examine_backends
from penstock.cli.doctor.findings import Finding, FindingStatus
from penstock.config import Settings, StoreSettings
from penstock.model.clock import SystemClock
from penstock.model.errors import InvalidSetting, StoreUnavailable
from penstock.model.ids import ShardId
from penstock.store.dynamodb import DynamoStore, schema
from penstock.store.dynamodb.address import TableAddress
from penstock.store.dynamodb.migrate import connect
from tests.dynamodb import new_table
from tests.emulators import dynoxide, use_emulator


@pytest.fixture
def table() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        use_emulator(patch, dynoxide())
        yield new_table()


async def examined(table: str, **store: Any) -> Finding:
    (finding,) = await examine_backends(Settings(store=StoreSettings(url=f"dynamodb://{table}", **store)))
    return finding


async def make(table: str, **changed: Any) -> None:
    """A table as ours, but for these arguments of CreateTable."""
    service = await AwsService.open("dynamodb", error=StoreUnavailable, deadline=timedelta(seconds=5))
    try:
        await service.call("CreateTable", **schema.definition(table) | changed)
    finally:
        await service.close()


def db(*arguments: str) -> str:
    answer = CliRunner().invoke(ROOT, ["db", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("dynamodb://jobs", TableAddress("jobs")),
        ("dynamodb://My_jobs.2?create=false", TableAddress("My_jobs.2", False)),
    ],
)
def test_a_url_names_a_table(url: str, address: TableAddress) -> None:
    assert TableAddress.parse(url) == address


@pytest.mark.parametrize(
    "url", ["dynamodb://", "dynamodb://ab", "dynamodb://a b c", "dynamodb://jobs/x", "dynamodb://jobs?create=maybe",
            "dynamodb://jobs?region=eu-west-1"]
)  # fmt: skip
def test_a_url_that_names_no_table_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting):
        TableAddress.parse(url)


async def test_a_server_opens_the_table_that_its_settings_name(table: str) -> None:
    settings = Settings(store=StoreSettings(url=f"dynamodb://{table}"))
    assert engine_extras(settings) == ["aws"]
    opened = await open_shard(ShardId(0), settings.store.url, settings, SystemClock())
    assert isinstance(opened, DynamoStore)
    await opened.close()


@pytest.mark.parametrize(("option", "migrate"), [("?create=false", True), ("", False)])
async def test_a_table_that_may_not_be_created_is_asked_for(table: str, option: str, migrate: bool) -> None:
    settings = Settings(store=StoreSettings(url=f"dynamodb://{table}{option}", migrate=migrate))
    with pytest.raises(StoreUnavailable, match="penstock db migrate"):
        await open_shard(ShardId(0), settings.store.url, settings, SystemClock())
    assert (await examined(table + option, migrate=migrate)).remedy == "run: penstock db migrate"


def test_migrate_makes_the_table_and_status_shows_its_parts(table: str) -> None:
    url = f"dynamodb://{table}"
    before = json.loads(db("status", "--url", url, "--json"))
    assert (before["present"], before["wrong"]) == ([], [])
    assert json.loads(db("migrate", "--url", url, "--json")) == {"shard": 0, "applied": before["missing"]}
    after = json.loads(db("status", "--url", url, "--json"))
    assert (after["present"], after["missing"]) == (before["missing"], [])
    assert "up to date" in db("migrate", "--url", url)
    assert "index 'place'" in db("status", "--url", url)


async def test_migrate_adds_what_a_table_lacks(table: str) -> None:
    ours = schema.definition(table)
    first, *_ = ours["GlobalSecondaryIndexes"]
    names = {"pk", "sk", *schema.INDEX_KEYS[first["IndexName"]]}
    kept = [one for one in ours["AttributeDefinitions"] if one["AttributeName"] in names]
    await make(table, GlobalSecondaryIndexes=[first], AttributeDefinitions=kept)
    async with connect(f"dynamodb://{table}") as shape:
        assert (await shape.status()).missing == ("index 'age'", "index 'untold'", "expiry of rows")
        await shape.migrate()
        assert (await shape.status()).missing == ()
    await (await DynamoStore.open(table)).close()


async def test_a_table_of_another_shape_is_left_alone(table: str) -> None:
    attributes = [one for one in schema.definition(table)["AttributeDefinitions"] if one["AttributeName"] not in "pksk"]
    await make(table, KeySchema=[{"AttributeName": "gp", "KeyType": "HASH"}], AttributeDefinitions=attributes)
    finding = await examined(table)
    assert (finding.status, "primary key" in finding.found) == (FindingStatus.FAIL, True)
    async with connect(f"dynamodb://{table}") as shape:
        with pytest.raises(StoreUnavailable, match="primary key"):
            await shape.migrate()


async def test_the_doctor_makes_no_table_and_says_that_the_next_start_does(table: str) -> None:
    finding = await examined(table)
    assert (finding.status, "there is no table" in finding.found) == (FindingStatus.WARN, True)
    async with connect(f"dynamodb://{table}") as shape:
        assert (await shape.status()).present == ()


async def test_the_doctor_leaves_nothing_in_a_table_in_use(table: str) -> None:
    store = await DynamoStore.open(table)
    before = await items_of(store)
    finding = await examined(table)
    assert (finding.status, finding.remedy) == (FindingStatus.OK, "")
    assert await items_of(store) == before
    await store.close()


async def test_the_doctor_names_every_action_that_is_denied(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await DynamoStore.open(table)).close()
    denied = {"PutItem", "TransactWriteItems"}
    real = AwsService.call

    async def call(self: AwsService, action: str, **arguments: Any) -> dict[str, Any]:
        # No emulator checks rights: this is the answer that AWS gives.
        if action in denied:
            refused = {"Error": {"Code": "AccessDeniedException", "Message": "User: … is not authorized"}}
            raise self._judge(action, refused)
        return await real(self, action, **arguments)

    monkeypatch.setattr(AwsService, "call", call)
    finding = await examined(table)
    assert finding.status is FindingStatus.FAIL
    assert {action for action in denied if f"dynamodb:{action}" in finding.found} == denied
    assert "dynamodb:GetItem" not in finding.found


async def test_without_a_region_the_doctor_says_which_variable_to_set(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    finding = await examined(table)
    assert (finding.status, "AWS_REGION" in finding.found) == (FindingStatus.FAIL, True)


async def test_bad_credentials_and_a_silent_server_are_told_apart_from_a_missing_table(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    finding = await examined(table)
    assert (finding.status, "did not answer DescribeTable" in finding.found) == (FindingStatus.FAIL, True)


async def items_of(store: DynamoStore) -> list[dict[str, Any]]:
    return (await store.table.call("Scan", TableName=store.table.name))["Items"]  # type: ignore[no-any-return]
