"""A client that knows nothing but HTTP: one kept connection, no retries of its own."""

import http.client
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

TIMEOUT_SECONDS = 30.0


class Answer(Struct, frozen=True):
    status: int
    body: Any
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Broken(Exception):
    """No answer; `sent` tells whether the request may have arrived."""

    def __init__(self, reason: Exception, *, sent: bool) -> None:
        super().__init__(f"{type(reason).__name__}: {reason}")
        self.sent = sent


class Caller:
    """Calls one address from one thread."""

    def __init__(self, port: int, timeout: float = TIMEOUT_SECONDS) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer, whatever its status; Broken if there is none."""
        text = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if text is not None else {}
        sent = False
        try:
            if self._line.sock is None:
                self._line.connect()
            sent = True
            self._line.request(method, path, text, {**kind, **(headers or {})})
            return _read(self._line.getresponse())
        except (OSError, http.client.HTTPException) as reason:
            self._line.close()
            raise Broken(reason, sent=sent) from None

    def close(self) -> None:
        self._line.close()


def _read(response: http.client.HTTPResponse) -> Answer:
    text = response.read()
    after = response.headers.get("Retry-After")
    json_like = "json" in response.headers.get("Content-Type", "")
    body = json.loads(text) if json_like else text.decode(errors="replace")
    return Answer(response.status, body, float(after) if after else None)
