"""Is this process alive, and can it take jobs now."""

from penstock import __version__
from penstock.api.exchange import Call, Reply, json_reply
from penstock.api.operation import Answer, operation
from penstock.model.wire import Health

_OK = json_reply(200, Health("ok", __version__))


@operation("GET /healthz", {200: Answer("Alive.", Health)})
async def healthz(call: Call) -> Reply:
    """Say that the process answers. Restart it if it does not."""
    return _OK


@operation("GET /readyz", {200: Answer("Ready.", Health)})
async def readyz(call: Call) -> Reply:
    """Say that jobs can be accepted now; 503 if not. Send traffic elsewhere meanwhile, but do not restart."""
    await call.engine.ready()
    return _OK


OPERATIONS = (healthz, readyz)
