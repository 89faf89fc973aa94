"""Metrics as Prometheus reads them."""

import re

from penstock.api.metrics import Traffic, _family
from tests.http.desk import Client, submit

LINE = re.compile(r'(# (HELP|TYPE) .+|[a-z_]+\{([a-z]+="(\\.|[^"\\\n])*",?)*\} [0-9.e+-]+)')


async def test_jobs_queues_workers_and_requests_are_measured(client: Client) -> None:
    item = await submit(client)
    await client.get(f"/v1/jobs/{item['id']}")
    await client.get("/nowhere")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert 'penstock_jobs{queue="other",type="other",state="queued"} 1' in lines
    assert 'penstock_workers{state="ready"} 1' in lines
    assert 'penstock_http_requests_total{route="/v1/jobs",method="POST",status="201"} 1' in lines
    assert 'penstock_http_requests_total{route="/v1/jobs/{job}",method="GET",status="200"} 1' in lines
    assert 'penstock_http_requests_total{route="unknown",method="GET",status="404"} 1' in lines
    assert 'penstock_http_seconds_bucket{route="/v1/jobs",method="POST",le="+Inf"} 1' in lines
    assert 'penstock_http_seconds_count{route="/v1/jobs",method="POST"} 1' in lines
    assert any(line.startswith('penstock_queue_oldest_seconds{queue="other"}') for line in lines)


def test_invented_methods_and_paths_make_no_new_series() -> None:
    traffic = Traffic()
    for number in range(100):
        traffic.note(None, f"X{number}", 404, 0.001)
    assert [labels for _, labels, _ in traffic.requests()] == [{"route": "unknown", "method": "other", "status": "404"}]


def test_buckets_count_everything_up_to_their_bound() -> None:
    traffic = Traffic()
    for seconds in (0.001, 0.002, 0.3, 100):
        traffic.note("/", "GET", 200, seconds)
    buckets = {labels["le"]: value for suffix, labels, value in traffic.durations() if suffix == "_bucket"}
    assert (buckets["0.001"], buckets["0.005"], buckets["0.5"], buckets["60.0"], buckets["+Inf"]) == (1, 2, 3, 3, 4)


def test_a_label_cannot_end_its_quotes() -> None:
    text = _family("x", "gauge", "About.", [("", {"queue": 'a"b\\c\nd'}, 1)])
    assert text.splitlines()[-1] == 'x{queue="a\\"b\\\\c\\nd"} 1'
