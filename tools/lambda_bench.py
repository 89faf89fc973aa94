"""Measures the functions as Lambda would run them: the built package alone, over emulators of DynamoDB and SQS.

    make lambda && python -m tools.lambda_bench build/lambda.zip

Cold: from the first import to the first answer of a new process, without the start of the interpreter. Warm: CPU time
of this process per request. The bars are 1.5 s and 15 ms.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from servers import Dynoxide, Ministack, aws_environ

COLD_STARTS = 5
WARM_REQUESTS = 200
COLD_BAR, WARM_BAR = 1.5, 15.0

CHILD = """
import json, sys, time
sys.path[:0] = [sys.argv[1]]
began, began_cpu = time.perf_counter(), time.process_time()
from penstock.functions import handlers
event = json.loads(sys.argv[2])
answer = handlers.add(event, None)
cold, cold_cpu = time.perf_counter() - began, time.process_time() - began_cpu
assert answer["statusCode"] == 201, answer
requests = int(sys.argv[3])
began, began_cpu = time.perf_counter(), time.process_time()
for _ in range(requests):
    handlers.add(event, None)
warm, warm_cpu = time.perf_counter() - began, time.process_time() - began_cpu
print(json.dumps({
    "cold_seconds": cold, "cold_cpu_seconds": cold_cpu,
    "warm_ms": 1000 * warm / requests, "warm_cpu_ms": 1000 * warm_cpu / requests,
}))
"""

KEY = """
import sys
sys.path[:0] = [sys.argv[1]]
from penstock.functions import handlers
from penstock.model.keys import KeyScope
from penstock.model.wire.keys import KeyRequest
request = KeyRequest(name="bench", scopes=(KeyScope.ADMIN,))
print(handlers.process_host().run(lambda engine: engine.keys.create(request)).key)
"""


def main(words: Sequence[str]) -> int:
    (package,) = words
    with tempfile.TemporaryDirectory(prefix="penstock-lambda-bench-") as name:
        folder = Path(name)
        place = folder / "package"
        zipfile.ZipFile(package).extractall(place)
        table, services = Dynoxide(folder / "dynoxide"), Ministack(folder / "ministack")
        for server in (table, services):
            server.folder.mkdir()
            server.start()
        try:
            environ = environ_of(table, services)
            event = add_event(_run(KEY, environ, place))
            runs = [json.loads(_run(CHILD, environ, place, event, str(WARM_REQUESTS))) for _ in range(COLD_STARTS)]
        finally:
            table.stop()
            services.stop()
    return report(runs)


def environ_of(table: Dynoxide, services: Ministack) -> dict[str, str]:
    """The environment of a function: nothing of this one but the path."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        **aws_environ(services.endpoint),
        "AWS_ENDPOINT_URL_DYNAMODB": table.endpoint,
        "PENSTOCK_STORE_URL": "dynamodb://bench",
        "PENSTOCK_BROKER_URL": "sqs://bench",
        "PENSTOCK_OBJECTS_URL": "s3://bench",
        "PENSTOCK_SERVER_ALLOW_UNKNOWN_TYPES": "true",
    }


def add_event(key: str) -> str:
    """A request to add a job, as API Gateway sends it."""
    body = json.dumps({"type": "mail", "params": {"to": "you", "text": "x" * 200}})
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "host": "api.example"}
    http = {"method": "POST", "path": "/v1/jobs", "protocol": "HTTP/1.1", "sourceIp": "203.0.113.7", "userAgent": "x"}
    event = {
        "version": "2.0",
        "routeKey": "POST /v1/jobs",
        "rawPath": "/v1/jobs",
        "rawQueryString": "",
        "headers": headers,
        "requestContext": {"http": http, "stage": "$default"},
        "body": body,
        "isBase64Encoded": False,
    }
    return json.dumps(event)


def _run(code: str, environ: Mapping[str, str], *words: object) -> str:
    """What a new interpreter prints that sees no library but those of the package."""
    command = [sys.executable, "-I", "-S", "-c", code, *map(str, words)]
    told = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False, timeout=120)
    if told.returncode:
        raise SystemExit(told.stderr)
    return told.stdout.splitlines()[-1]


def report(runs: Sequence[Mapping[str, float]]) -> int:
    """Print the medians; 1 if one is above its bar."""
    middle = {name: median(run[name] for run in runs) for name in runs[0]}
    print(f"cold start: {middle['cold_seconds']:.2f} s, CPU {middle['cold_cpu_seconds']:.2f} s ({len(runs)} starts)")
    print(f"warm add: {middle['warm_ms']:.1f} ms, CPU {middle['warm_cpu_ms']:.1f} ms ({WARM_REQUESTS} requests each)")
    is_met = middle["cold_seconds"] <= COLD_BAR and middle["warm_cpu_ms"] <= WARM_BAR
    print(f"bars of {COLD_BAR} s and {WARM_BAR:.0f} ms: {'met' if is_met else 'missed'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
