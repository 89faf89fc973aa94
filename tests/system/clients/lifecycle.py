"""submit → wait → cancel → list with the client that openapi-python-client makes of /openapi.json.

Prints what it saw as JSON. Runs in the generator's own virtualenv.
"""

import importlib
import json
import pkgutil
import sys

import penstock_client
from penstock_client import Client
from penstock_client.api.jobs import cancel_job, get_job, list_jobs, submit_job
from penstock_client.models import Problem, SubmitRequest, SubmitRequestParams

TAG = "python"


def load_everything() -> int:
    """How many modules there are; each of them must be importable."""
    modules = [one.name for one in pkgutil.walk_packages(penstock_client.__path__, "penstock_client.")]
    for name in modules:
        importlib.import_module(name)
    return len(modules)


def main(url: str) -> None:
    client = Client(base_url=url)
    params = SubmitRequestParams.from_dict({"n": 7})
    submitted = submit_job.sync(client=client, body=SubmitRequest(type_="mark", params=params, tags=[TAG]))
    ended = get_job.sync(submitted.id, client=client, wait=60)
    body = SubmitRequest(type_="mark", params=params, delay_seconds=3600, tags=[TAG])
    later = submit_job.sync(client=client, body=body)
    cancelled = cancel_job.sync(later.id, client=client)
    page = list_jobs.sync(client=client, tag=TAG)
    refused = submit_job.sync(client=client, body=SubmitRequest(type_="no_such_type"))
    assert isinstance(refused, Problem)
    seen = {
        "result": ended.result,
        "states": [ended.state, cancelled.state],
        "listed": [job.id for job in page.jobs],
        "ids": [later.id, submitted.id],
        "refused": refused.code,
    }
    json.dump({**seen, "modules": load_everything()}, sys.stdout)


main(*sys.argv[1:])
