"""The final state of every job, read through the public API."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from cluster.caller import Answer, Broken, Caller
from cluster.checker import ENDED, Found
from cluster.jobs import OUTPUT

PATIENCE_SECONDS = 60.0


def wait_until_ended(caller: Caller, seconds: float) -> bool:
    """Wait until every job has ended; False if that takes longer than `seconds`."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not _count_open(caller):
            return True
        pause.wait(0.2)
    return False


def collect_jobs(caller: Caller) -> Iterator[Found]:
    """Read every job; RuntimeError while a shard does not answer."""
    cursor = ""
    while True:
        page = get_answer(caller, f"/v1/jobs?limit=500{cursor}").body
        if page["missing_shards"]:
            raise RuntimeError(f"shards {page['missing_shards']} do not answer, so not every job is seen")
        for item in page["jobs"]:
            yield _read_job(caller, item)
        if page["cursor"] is None:
            return
        cursor = f"&cursor={page['cursor']}"


def get_answer(caller: Caller, path: str) -> Answer:
    """GET a path, again while the server is unavailable; RuntimeError for any other refusal."""
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = caller.call("GET", path)
        except Broken:
            answer = Answer(503, None)
        if answer.ok:
            return answer
        if answer.status < 500 or time.monotonic() > deadline:
            raise RuntimeError(f"GET {path} was answered with {answer.status}: {answer.body}")
        pause.wait(0.5)


def _count_open(caller: Caller) -> int:
    answer = get_answer(caller, "/v1/queues").body
    if answer["missing_shards"]:
        return 1
    return sum(jobs for queue in answer["queues"] for state, jobs in queue["jobs"].items() if state not in ENDED)


def _read_job(caller: Caller, item: dict[str, Any]) -> Found:
    path = f"/v1/jobs/{item['id']}"
    whole = get_answer(caller, path).body if "params" in item["omitted"] else item
    output = get_answer(caller, f"{path}/outputs/{OUTPUT}").body if item["outputs"] else None
    return Found(
        id=item["id"],
        n=whole["params"]["n"],
        state=item["state"],
        fence=item["fence"],
        type=item["type"],
        version=item["version"],
        result=item["result"],
        output=output,
    )
