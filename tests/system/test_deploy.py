"""What `deploy/` ships is what we run, or at least what can be read."""

import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from penstock.backends import check_shared, shard_map
from penstock.config import load
from penstock.config.load import FIELDS
from servers import Nginx
from servers.launch import free_port, on_path
from servers.nginx import SHIPPED, rendered
from tests.servers_fixtures import real_servers
from tests.system.command_line import parse
from tests.system.harness import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
INSTALLED = "/opt/penstock/bin/penstock"
HARDENING = {"NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "CapabilityBoundingSet", "User"}


def test_nginx_accepts_the_shipped_configuration_and_answers_with_it() -> None:
    with real_servers() as folder:
        nginx = Nginx(folder, [free_port(), free_port()])
        words = nginx.command()
        told = subprocess.run([*words, "-t"], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        assert "warn" not in told.stderr
        with nginx:
            assert nginx.alive


def test_nginx_as_it_is_shipped_is_accepted_inside_the_usual_file(tmp_path: Path) -> None:
    with real_servers():
        (tmp_path / "nginx.conf").write_text(
            f"pid {tmp_path}/pid;\nerror_log {tmp_path}/log;\nevents {{}}\nhttp {{ include {SHIPPED}; }}\n"
        )
        told = subprocess.run(
            [on_path("nginx", "nginx-light"), "-t", "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "log")],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "syntax is ok" in told.stderr, told.stderr


def test_rendering_changes_the_ports_and_nothing_else() -> None:
    shipped = SHIPPED.read_text()
    text = rendered(shipped, 1, [2, 3, 4])
    assert re.findall(r"server (127\S+)", text) == ["127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"]
    assert "listen 127.0.0.1:1;" in text
    assert len(text.splitlines()) == len(shipped.splitlines()) + 1
    with pytest.raises(ValueError, match="one list of servers"):
        rendered("server { listen 80; }", 1, [2])


def test_no_post_is_ever_sent_twice() -> None:
    (policy,) = re.findall(r"proxy_next_upstream ([^;]*);", SHIPPED.read_text())
    assert policy.split() == ["error", "timeout"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_names_a_command_that_exists_and_is_hardened(unit: Path) -> None:
    service = sections(unit)["Service"]
    program, command, *words = service["ExecStart"].split()
    assert program == INSTALLED
    parse([command, *(re.sub("^%i$", "7373", word) for word in words)])
    assert set(service) >= HARDENING
    assert service["User"] != "root"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_no_fault_with_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here; the units were parsed all the same")
    here = tmp_path / unit.name
    here.write_text(unit.read_text().replace(INSTALLED, sys.executable))
    told = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")


def sections(unit: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False, delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    return parser


def test_the_units_are_those_of_the_roles() -> None:
    assert [unit.name for unit in UNITS] == [
        "penstock-api@.service",
        "penstock-scheduler.service",
        "penstock-worker.service",
    ]


def test_the_example_settings_load_and_name_a_whole_cluster() -> None:
    settings = load(DEPLOY / "penstock.toml", {}, {})
    check_shared(settings, "api")
    assert sorted(shard_map(settings).members) == [0, 1]
    assert settings.objects.url
    assert settings.server.needs_keys


def composed() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def test_compose_has_every_part() -> None:
    services = composed()["services"]
    assert set(services) >= {
        "nginx", "api0", "api1", "scheduler", "worker", "shard0", "shard1", "valkey", "s3"
    }  # fmt: skip
    roles = {name: parse(one["command"]).info_name for name, one in services.items() if one["image"] == "penstock"}
    assert roles["api0"] == roles["api1"] == "api"


def test_the_commands_that_the_head_of_compose_names_are_ones_that_it_runs() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    asked = re.findall(r"run --rm (\w+) (\w+ .+)$", text, re.MULTILINE)
    assert asked
    for service, words in asked:
        assert service in composed()["services"]
        parse(words.split())


def test_compose_gives_settings_that_exist_and_the_credentials_of_s3_to_every_role() -> None:
    ours = [one["environment"] for one in composed()["services"].values() if one["image"] == "penstock"]
    given = ours[0]
    assert all(one == given for one in ours)
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= given.keys()
    known = {f"PENSTOCK_{name.replace('.', '_').upper()}" for name in FIELDS}
    assert {name for name in given if name.startswith("PENSTOCK_")} <= known
    settings = load(None, {name: value for name, value in given.items() if name.startswith("PENSTOCK_")}, {})
    check_shared(settings, "api")
    assert settings.server.needs_keys
    assert len(shard_map(settings).members) == 2


def test_compose_puts_the_apis_into_the_shipped_configuration() -> None:
    """Its nginx container replaces the two addresses of the file; both must be there to be replaced."""
    command = composed()["services"]["nginx"]["command"][-1]
    for address, api in re.findall(r"s/([\d.]+:\d+)/(\w+:\d+)/", command):
        assert f"server {address} " in SHIPPED.read_text()
        assert api.partition(":")[0] in composed()["services"]


def test_the_image_runs_as_nobody_special_from_pinned_hashes() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert "--require-hashes --requirement requirements/runtime.txt" in text
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER penstock$", last, re.MULTILINE)
    assert 'ENTRYPOINT ["penstock"]' in last
    for place in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / one).exists() for one in place.split())
