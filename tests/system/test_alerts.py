"""Rules and dashboard of deploy/prometheus: sound, complete, and about metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from penstock.api.metrics import FAMILIES
from servers import Missing, promtool
from tests.servers_fixtures import real_servers
from tests.system.alert_cases import CASES, rule_tests

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
DOCS = Path(__file__).resolve().parents[2] / "docs"
RULES = DEPLOY / "rules.yml"
RECORD = re.compile(r"penstock:[a-z_:0-9]+")
METRIC = re.compile(r"\b(?:penstock|process)_[a-z_]+")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    x: int
    y: int
    w: int
    h: int


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: str
    uid: str


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    ref_id: str
    datasource: Source
    expr: str
    legend_format: str


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    id: int
    title: str
    type: str
    datasource: Source
    grid_pos: Grid
    options: dict[str, Any]
    field_config: dict[str, Any]
    targets: list[Target]


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What Grafana reads, as far as this dashboard says it."""

    title: str
    uid: str
    tags: list[str]
    timezone: str
    editable: bool
    schema_version: int
    version: int
    refresh: str
    time: dict[str, str]
    templating: dict[str, list[dict[str, Any]]]
    annotations: dict[str, list[Any]]
    panels: list[Panel]


@pytest.fixture
def dashboard() -> Dashboard:
    return msgspec.json.decode((DEPLOY / "dashboard.json").read_bytes(), type=Dashboard)


@pytest.fixture(autouse=True)
def needs_promtool() -> None:
    with real_servers():
        promtool("--version")


def test_configuration_and_rules_are_what_prometheus_reads() -> None:
    assert "SUCCESS" in promtool("check", "config", str(DEPLOY / "prometheus.yml"))
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


def test_each_alert_fires_when_it_should_and_no_other_with_it(tmp_path: Path) -> None:
    assert set(CASES) == {rule["alert"] for rule in rules() if "alert" in rule}
    tests = tmp_path / "tests.yml"
    tests.write_text(json.dumps(rule_tests(str(RULES))))
    assert "SUCCESS" in promtool("test", "rules", str(tests))


def test_a_rule_that_promtool_cannot_read_is_no_success(tmp_path: Path) -> None:
    broken = tmp_path / "rules.yml"
    broken.write_text(RULES.read_text().replace("min by (shard)", "min by shard"))
    with pytest.raises((RuntimeError, Missing), match="parse error"):
        promtool("check", "rules", str(broken))


def test_every_alert_is_explained_to_its_operator() -> None:
    guide = (DOCS / "guides" / "operating.md").read_text()
    for rule in rules():
        if "alert" in rule:
            assert f"`{rule['alert']}`" in guide
            assert {"summary", "description"} <= set(rule["annotations"])
            assert rule["labels"]["severity"] in {"page", "ticket"}


def test_rules_and_panels_are_about_metrics_that_there_are(dashboard: Dashboard) -> None:
    names = {family.name for family in FAMILIES}
    histograms = {family.name for family in FAMILIES if family.kind == "histogram"}
    names |= {f"{name}{part}" for name in histograms for part in ("_bucket", "_sum", "_count")}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = [rule["expr"] for rule in rules()] + [target.expr for panel in dashboard.panels for target in panel.targets]
    for expression in asked:
        assert set(RECORD.findall(expression)) <= recorded, expression
        assert set(METRIC.findall(RECORD.sub("", expression))) <= names, expression


def test_the_dashboard_is_whole_and_its_expressions_can_be_asked(dashboard: Dashboard, tmp_path: Path) -> None:
    assert len({panel.id for panel in dashboard.panels}) == len(dashboard.panels)
    places = [(x, y) for panel in dashboard.panels for x, y in _cells(panel.grid_pos)]
    assert len(places) == len(set(places)), "panels lie over each other"
    assert max(x for x, _ in places) < 24
    expressions = [target.expr for panel in dashboard.panels for target in panel.targets]
    asked = [{"record": f"asked:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    file = tmp_path / "asked.yml"
    file.write_text(json.dumps({"groups": [{"name": "asked", "rules": asked}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(file))


def _cells(grid: Grid) -> list[tuple[int, int]]:
    return [(x, y) for x in range(grid.x, grid.x + grid.w) for y in range(grid.y, grid.y + grid.h)]
