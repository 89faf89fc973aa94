"""For each alert of deploy/prometheus the series that make it fire, and when: what `promtool test rules` is given."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class AlertCase(Struct, frozen=True):
    """Series by minute, an instant at which the alert does not fire yet, and one at which it alone does."""

    series: Mapping[str, str]
    quiet: str
    fires: str


def _sample(name: str, **labels: str) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def _api(name: str, instance: str = "a", **labels: str) -> str:
    return _sample(name, job="penstock-api", instance=instance, **labels)


CASES: Mapping[str, AlertCase] = {
    "PenstockShardDown": AlertCase(
        {
            _api("penstock_shard_up", "a", shard="0"): "1x20",
            _api("penstock_shard_up", "a", shard="1"): "1 1 0x18",
            _api("penstock_shard_up", "b", shard="1"): "1x20",
        },
        "2m30s",
        "3m",
    ),
    "PenstockBrokerDown": AlertCase({_api("penstock_broker_up"): "1 1 0x18"}, "2m30s", "3m"),
    "PenstockObjectsDown": AlertCase({_api("penstock_objects_up"): "1 1 0x18"}, "3m", "4m"),
    "PenstockProcessDown": AlertCase({_api("up"): "1 1 0x18", _api("up", "b"): "1x20"}, "3m", "4m"),
    "PenstockSchedulerDown": AlertCase({_sample("up", job="penstock-scheduler", instance="s"): "1 1 0x18"}, "2m", "3m"),
    "PenstockMetricsAbsent": AlertCase({_api("penstock_build_info"): "1 1 _x18"}, "9m", "13m"),
    "PenstockServiceStuck": AlertCase(
        {
            _api("penstock_service_step_timestamp_seconds", service="reaper 0"): "0 60 120x18",
            _api("penstock_service_step_timestamp_seconds", service="pruner 0"): "0x20",
        },
        "4m",
        "5m",
    ),
    "PenstockJobsFailing": AlertCase(
        {
            _api("penstock_jobs_ended_total", "a", type="bad", outcome="failed"): "0+3x20",
            _api("penstock_jobs_ended_total", "b", type="bad", outcome="succeeded"): "0+9x20",
            _api("penstock_jobs_ended_total", "a", type="good", outcome="failed"): "0+1x20",
            _api("penstock_jobs_ended_total", "b", type="good", outcome="succeeded"): "0+99x20",
        },
        "4m",
        "8m",
    ),
    "PenstockRetriesHigh": AlertCase(
        {
            _api("penstock_retries_total", type="flaky"): "0+6x40",
            _api("penstock_job_run_seconds_count", type="flaky"): "0+8x40",
        },
        "9m",
        "20m",
    ),
    "PenstockLeasesLost": AlertCase(
        {_sample("penstock_leases_lost_total", job="penstock-scheduler", type="mail"): "0 0 0 4 4 9x15"}, "4m", "6m"
    ),
    "PenstockScheduleLate": AlertCase(
        {_api("penstock_schedule_late_seconds", schedule="nightly"): "_ _ 10 70 130+60x16"}, "3m30s", "4m"
    ),
    "PenstockQueueWaits": AlertCase(
        {
            _api("penstock_queue_oldest_seconds", shard="0", queue="mail"): "0+60x40",
            _api("penstock_queue_oldest_seconds", shard="0", queue="held"): "0+60x40",
            _api("penstock_queue_paused", queue="mail"): "0x40",
            _api("penstock_queue_paused", queue="held"): "1x40",
        },
        "19m",
        "22m",
    ),
    "PenstockWorkersSaturated": AlertCase(
        {_api("penstock_worker_running"): "16x60", _api("penstock_worker_capacity"): "16x60"}, "29m", "31m"
    ),
    "PenstockRequestsFailing": AlertCase(
        {
            _api("penstock_http_requests_total", status="201"): "0+90x20",
            _api("penstock_http_requests_total", status="503"): "0+10x20",
        },
        "4m",
        "8m",
    ),
    "PenstockConnectionsExhausted": AlertCase(
        {_api("penstock_http_connections"): "980x20", _api("penstock_http_connections_max"): "1000x20"}, "4m", "6m"
    ),
}

ALIVE = {_api("penstock_build_info"): "1x60"}
FIRING = 'sum by (alertname) (ALERTS{alertstate="firing"}) > bool 0'


def rule_tests(rules: str) -> dict[str, Any]:
    """All of them as promtool reads them."""
    groups = [_group(alert, case) for alert, case in CASES.items()]
    return {"rule_files": [rules], "evaluation_interval": "30s", "tests": groups}


def _group(alert: str, case: AlertCase) -> dict[str, Any]:
    alive = {} if alert == "PenstockMetricsAbsent" else ALIVE
    given = [{"series": series, "values": values} for series, values in {**alive, **case.series}.items()]
    fired = [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
    return {
        "name": alert,
        "interval": "1m",
        "input_series": given,
        "promql_expr_test": [
            {"expr": FIRING, "eval_time": case.quiet},
            {"expr": FIRING, "eval_time": case.fires, "exp_samples": fired},
        ],
    }
