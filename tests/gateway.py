"""Requests as an HTTP API of API Gateway hands them to a function, and a function's process on small backends."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from penstock.config import LimitSettings, ServerSettings, Settings, StoreSettings
from penstock.functions import routes
from penstock.functions.host import FunctionHost
from penstock.model.keys import KeyScope
from penstock.model.wire.keys import KeyRequest

MOST_SWEEPS = 500
SERVED = {"add": routes.ADD, "query": routes.QUERY, "cancel": routes.CANCEL, "rest": routes.REST}


def gateway_event(
    method: str, path: str, body: object = None, *, query: str = "", headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """An event in payload format 2.0, with the fields that AWS documents."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {
            "accept": "*/*",
            "content-length": "0" if body is None else str(len(json.dumps(body))),
            "content-type": "application/json",
            "host": "r3pmxmplak.execute-api.us-east-1.amazonaws.com",
            "user-agent": "curl/8.5.0",
            "x-amzn-trace-id": "Root=1-5e6722a7-cc56xmpl46db7ae02d4da47e",
            "x-forwarded-for": "205.255.255.176",
            "x-forwarded-port": "443",
            "x-forwarded-proto": "https",
            **(headers or {}),
        },
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "r3pmxmplak",
            "domainName": "r3pmxmplak.execute-api.us-east-1.amazonaws.com",
            "domainPrefix": "r3pmxmplak",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "205.255.255.176",
                "userAgent": "curl/8.5.0",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": "$default",
            "stage": "$default",
            "time": "10/Mar/2020:05:16:23 +0000",
            "timeEpoch": 1583817383220,
        },
        **({} if body is None else {"body": json.dumps(body)}),
        "isBase64Encoded": False,
    }


class FunctionClient:
    """Asks functions of one process, with an admin key."""

    def __init__(self, host: FunctionHost) -> None:
        self.host = host
        request = KeyRequest(name="ops", scopes=(KeyScope.ADMIN,))
        self.key = host.run(lambda engine: engine.keys.create(request)).key

    def ask(self, function: str, method: str, path: str, body: object = None, **more: Any) -> dict[str, Any]:
        """The answer, with its body decoded."""
        headers = {"authorization": f"Bearer {self.key}", **more.pop("headers", {})}
        event = gateway_event(method, path, body, headers=headers, **more)
        answer = self.host.answer(function, SERVED[function], event, None)
        assert answer["isBase64Encoded"] is False
        return {**answer, "body": json.loads(answer["body"]) if answer["body"] else None}

    def add(self, **job: Any) -> dict[str, Any]:
        answer = self.ask("add", "POST", "/v1/jobs", {"type": "mail", **job})
        assert answer["statusCode"] == 201, answer
        body: dict[str, Any] = answer["body"]
        return body


def sweep_until_queued(client: FunctionClient, job: str, sweep: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Sweep until a delayed job is queued; the last report. Nothing is early by a table's time, known to a second."""
    for _ in range(MOST_SWEEPS):
        report = sweep()
        if client.ask("query", "GET", f"/v1/jobs/{job}")["body"]["state"] == "queued":
            return report
    raise AssertionError(f"{job} is not queued after {MOST_SWEEPS} sweeps")


def small_settings(folder: Path, **changes: Any) -> Settings:
    """The settings of a function over SQLite, which a test may have in place of DynamoDB."""
    server = ServerSettings(data=str(folder), keys="required", allow_unknown_types=True)
    settings = Settings(server=server, store=StoreSettings(url=f"sqlite://{folder}/penstock.db"))
    return replace(settings, limits=LimitSettings(wait_seconds=0.2), **changes)
