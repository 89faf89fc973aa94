"""Settings: three places, one winner, and every fault told at once."""

from pathlib import Path

import pytest

from penstock.config import Settings, TaskTable, load
from penstock.config.load import FIELDS, accepted, variable
from penstock.config.tables import SubscriptionTable
from penstock.model.errors import InvalidSetting


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "penstock.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def faults_of(
    file: Path | None = None, environ: dict[str, str] | None = None, flags: dict[str, object] | None = None
) -> list[str]:
    with pytest.raises(InvalidSetting) as raised:
        load(file, environ or {}, flags or {})
    listed = raised.value.details["faults"]
    assert isinstance(listed, list)
    assert all(fault in raised.value.message for fault in listed)
    return listed


def test_without_any_setting_the_defaults_hold() -> None:
    assert load(None, {}, {}) == Settings()


def test_the_file_in_the_current_folder_is_read() -> None:
    written("[server]\nport = 8000")
    assert load(None, {}, {}).server.port == 8000


def test_the_file_named_by_the_environment_is_read_instead() -> None:
    written("[server]\nport = 8000")
    written("[server]\nport = 8001", "other.toml")
    assert load(None, {"PENSTOCK_CONFIG": "other.toml"}, {}).server.port == 8001


def test_the_text_of_a_file_may_stand_in_the_environment_where_no_file_is_named() -> None:
    written("[server]\nport = 8000")
    environ = {"PENSTOCK_CONFIG_TEXT": "[server]\nport = 8002\n[fleets.mail]\nmax = 2"}
    assert load(None, environ, {}).server.port == 8002
    assert load(None, environ, {}).fleets == {"mail": {"max": 2}}
    assert load(Path("penstock.toml"), environ, {}).server.port == 8000
    assert "PENSTOCK_CONFIG_TEXT: is not TOML" in faults_of(environ={"PENSTOCK_CONFIG_TEXT": "port ="})[0]


def test_the_environment_wins_over_the_file_and_flags_win_over_both() -> None:
    written('[server]\nport = 8000\nhost = "127.0.0.2"\ndata = "file"')
    environ = {"PENSTOCK_SERVER_PORT": "8001", "PENSTOCK_SERVER_HOST": "127.0.0.3"}
    server = load(None, environ, {"server.port": 8002, "server.host": None}).server
    assert (server.port, server.host, server.data) == (8002, "127.0.0.3", "file")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("server.port", "0", 0),
        ("server.allow_unknown_types", "true", True),
        ("timing.lease_seconds", "20.5", 20.5),
        ("worker.queues", "mail, video", ("mail", "video")),
        ("worker.queues", "", ()),
    ],
)
def test_the_environment_is_read_as_the_settings_own_type(name: str, text: str, expected: object) -> None:
    section, field = name.split(".")
    settings = load(None, {variable(name): text}, {})
    assert getattr(getattr(settings, section), field) == expected


def test_penstock_url_is_short_for_the_server_and_the_full_name_wins() -> None:
    short = {"PENSTOCK_URL": "http://short:1"}
    assert load(None, short, {}).worker.url == "http://short:1"
    assert load(None, {**short, "PENSTOCK_WORKER_URL": "http://full:1"}, {}).worker.url == "http://full:1"


def test_every_fault_of_every_place_is_told_at_once() -> None:
    written('[server]\nprot = 1\nport = "x"\n[servr]\nport = 1\n[timing]\nlease_seconds = 0.1\n')
    environ = {"PENSTOCK_SERVER_PORT": "99999", "PENSTOCK_WORKER_EXECUTORS": "-1"}
    assert len(faults_of(environ=environ, flags={"worker.capacity": -1})) == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[servr]", "penstock.toml: [servr]: unknown section; did you mean server?"),
        ("[server]\nprot = 1", "penstock.toml: server.prot: unknown setting; did you mean port?"),
        ("server = 1", "penstock.toml: server: is a section; write [server] and its settings below"),
        (
            "[server]\nport = 70000",
            "penstock.toml: server.port: 70000 cannot be used; accepted: a whole number from 0 to 65535",
        ),
    ],
)
def test_a_fault_says_where_which_what_and_what_is_accepted(text: str, expected: str) -> None:
    written(text)
    assert faults_of() == [expected]


def test_an_unknown_variable_of_a_known_section_is_a_fault() -> None:
    wrong = "PENSTOCK_SERVER_PROT: unknown variable; did you mean PENSTOCK_SERVER_PORT?"
    assert faults_of(environ={"PENSTOCK_SERVER_PROT": "1"}) == [wrong]


def test_variables_that_are_nobodys_setting_are_left_alone() -> None:
    assert load(None, {"PENSTOCK_DEBUG": "1", "PENSTOCK_IMAGE": "x", "HOME": "/"}, {}) == Settings()


def test_a_file_that_was_named_has_to_be_there() -> None:
    assert faults_of(Path("none.toml")) == ["none.toml: there is no such file"]


def test_a_file_that_is_not_toml_is_a_fault_with_its_place() -> None:
    (fault,) = faults_of(written("[server\n"))
    assert fault.startswith("penstock.toml: is not TOML:")
    assert "line 1" in fault


def test_a_heartbeat_slower_than_the_lease_is_a_fault() -> None:
    (fault,) = faults_of(environ={"PENSTOCK_TIMING_LEASE_SECONDS": "2"})
    assert "timing.heartbeat_seconds: 5 is not below timing.lease_seconds (2)" in fault


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "internal", "10.0.0.0-10.0.0.9", "0x0a000000/8"])
def test_what_is_no_network_is_a_fault(text: str) -> None:
    (fault,) = faults_of(environ={"PENSTOCK_WEBHOOKS_ALLOW": f"192.168.0.0/16, {text}"})
    assert fault.startswith(f"PENSTOCK_WEBHOOKS_ALLOW: webhooks.allow: {text!r} is not a network")


def test_a_url_without_a_scheme_is_a_fault() -> None:
    (fault,) = faults_of(environ={"PENSTOCK_URL": "localhost:7373"})
    assert fault.startswith("PENSTOCK_URL: worker.url: 'localhost:7373' is not a server")


@pytest.mark.parametrize("setting", FIELDS)
def test_every_setting_can_say_what_it_accepts(setting: str) -> None:
    assert accepted(setting)


def test_subscriptions_are_tables_with_a_url() -> None:
    written('[subscriptions.orders]\nurl = "https://a/"\nstates = ["failed"]\nsecret_env = "ORDERS"')
    assert load(None, {}, {}).subscriptions == {
        "orders": SubscriptionTable(url="https://a/", states=("failed",), secret_env="ORDERS")
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[subscriptions.a]", "[subscriptions.a]: subscription: Object missing required field `url`"),
        ("[subscriptions.a]\nurl = 'u'\nurls = 1", "[subscriptions.a]: subscription: Object contains unknown field"),
        (
            "[subscriptions.a]\nurl = 'u'\nsecret = 'x'",
            "[subscriptions.a]: subscription: Object contains unknown field",
        ),
        ("[subscriptions.a]\nurl = 'u'\nstates = ['done']", "[subscriptions.a]: states: there is no state 'done'"),
        ("[subscriptions.a]\nurl = 'u'\ntypes = []", "[subscriptions.a]: types: the list is empty"),
        ("[subscriptions.'a b']\nurl = 'u'", "[subscriptions.a b]: is no name for a subscription"),
        ("[subscriptions]\na = 3", "[subscriptions.a]: is a table"),
        ("subscriptions = 3", "subscriptions: is a group of tables"),
        ("[subscriptions.a]\nurl = 'u'\n[events]\nkeep = false", "events.keep: is false"),
    ],
)
def test_a_table_of_a_subscription_that_cannot_be_used_is_told(text: str, expected: str) -> None:
    written(text)
    assert expected in faults_of()[0]


def test_tasks_are_tables_that_say_what_differs_for_a_fleet() -> None:
    written('[ecs]\ntask_definition = "all"\nsubnets = ["s"]\n[tasks.report]\nmode = "alarms"\nsubnets = ["r"]')
    settings = load(None, {"PENSTOCK_ECS_CLUSTER": "jobs"}, {})
    assert settings.tasks == {"report": TaskTable(mode="alarms", subnets=("r",))}
    assert (settings.ecs.cluster, settings.ecs.mode) == ("jobs", "autoscaler")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[tasks.mail]\nmode = 'both'", "[tasks.mail]: tasks: Invalid enum value 'both'"),
        ("[tasks.mail]\ncluster = 'x'", "[tasks.mail]: tasks: Object contains unknown field `cluster`"),
        ("[tasks]\nmail = 3", "[tasks.mail]: is a table"),
    ],
)
def test_a_table_of_tasks_that_cannot_be_used_is_told(text: str, wrong: str) -> None:
    written(text)
    assert wrong in faults_of()[0]


def test_fleets_are_tables_that_say_some_fields() -> None:
    written('[fleet]\nmax = 3\n[fleets.thumbnail]\nmax = 40\ntarget_wait_seconds = "2s"\nqueues = ["a", "b"]')
    settings = load(None, {"PENSTOCK_FLEET_MIN": "1"}, {})
    assert (settings.fleet.default.min, settings.fleet.default.max) == (1, 3)
    assert settings.fleets == {"thumbnail": {"max": 40, "target_wait_seconds": "2s", "queues": ["a", "b"]}}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[fleets.mail]\nmaxx = 3", "[fleets.mail]: fleet: Object contains unknown field `maxx`"),
        ("[fleets.mail]\nmax = 0", "[fleets.mail]: fleet: Expected `int` >= 1 - at `$.max`"),
        ("[fleets.mail]\ntarget_wait_seconds = 'soon'", "[fleets.mail]: fleet: target_wait: 'soon' is not a span"),
        ("[fleets.'a b']\nmax = 3", "[fleets.a b]: is no name for a fleet"),
        ("[fleets]\nmail = 3", "[fleets.mail]: is a table"),
        ("fleets = 3", "fleets: is a group of tables"),
        ("[fleet]\nmin = 11", "fleet.min: 11 is above fleet.max (10)"),
    ],
)
def test_what_cannot_be_a_fleet_is_told_with_the_other_faults(text: str, wrong: str) -> None:
    written(text)
    (fault,) = faults_of()
    assert wrong in fault


@pytest.mark.parametrize(
    "flags",
    [
        {"broker.url": "sqs://shop"},
        {"store.url": "dynamodb://shop"},
        {"store.shards": ("0=dynamodb://shop", "1=dynamodb://shop")},
    ],
)
def test_backends_that_are_paid_by_the_call_are_looked_at_less_often(flags: dict[str, object]) -> None:
    timing = load(None, {"PENSTOCK_TIMING_CATALOG_SECONDS": "3"}, flags).timing
    looks = (timing.dispatch_seconds, timing.observe_seconds, timing.catalog_seconds, timing.depths_seconds)
    assert looks == (5.0, 5.0, 3.0, 2.0)


def test_a_call_to_sqs_has_more_time_unless_it_is_set() -> None:
    assert load(None, {}, {"broker.url": "sqs://shop"}).broker.deadline_seconds == 5.0
    told = {"broker.url": "sqs://shop", "broker.deadline_seconds": 2.0}
    assert load(None, {}, told).broker.deadline_seconds == 2.0


def test_other_backends_are_looked_at_as_often_as_ever() -> None:
    timing = load(None, {}, {"store.url": "postgresql://db/shop", "broker.url": "redis://cache"}).timing
    assert timing == Settings().timing
