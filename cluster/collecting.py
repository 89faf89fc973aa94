"""The end, as the public API tells it."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from cluster.caller import Answer, Broken, Caller
from cluster.checker import ENDED, Found
from cluster.jobs import OUTPUT

PATIENCE_SECONDS = 60.0


def ended_within(caller: Caller, seconds: float) -> bool:
    """Wait until no queue has a job that has not ended; whether that came to be."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not _waiting(caller):
            return True
        pause.wait(0.2)
    return False


def collected(caller: Caller) -> Iterator[Found]:
    """Every job there is."""
    cursor = ""
    while True:
        page = asked(caller, f"/v1/jobs?limit=500{cursor}").body
        if page["missing_shards"]:
            raise RuntimeError(f"shards {page['missing_shards']} do not answer, so not every job is seen")
        for item in page["jobs"]:
            yield _found(caller, item)
        if page["cursor"] is None:
            return
        cursor = f"&cursor={page['cursor']}"


def asked(caller: Caller, path: str) -> Answer:
    """The answer to a GET, asked again while the server says that it cannot."""
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


def _waiting(caller: Caller) -> int:
    answer = asked(caller, "/v1/queues").body
    if answer["missing_shards"]:
        return 1
    return sum(jobs for queue in answer["queues"] for state, jobs in queue["jobs"].items() if state not in ENDED)


def _found(caller: Caller, item: dict[str, Any]) -> Found:
    path = f"/v1/jobs/{item['id']}"
    whole = asked(caller, path).body if "params" in item["omitted"] else item
    output = asked(caller, f"{path}/outputs/{OUTPUT}").body if item["outputs"] else None
    return Found(
        id=item["id"],
        n=whole["params"]["n"],
        state=item["state"],
        fence=item["fence"],
        result=item["result"],
        output=output,
    )
