"""Is this process alive, and can it take jobs now."""

import logging

from penstock import __version__
from penstock.api.operation import Answer, operation
from penstock.api.request import ApiReply, ApiRequest, json_reply
from penstock.model.errors import Refused, Unavailable
from penstock.model.keys import KeyScope
from penstock.model.wire.jobs import Health

logger = logging.getLogger("penstock.api")

_OK = json_reply(200, Health("ok", __version__))


@operation("GET /healthz", {200: Answer("Alive.", Health)})
async def healthz(call: ApiRequest) -> ApiReply:
    """Say that the process answers. Restart it if it does not."""
    return _OK


@operation("GET /readyz", {200: Answer("Ready.", Health)})
async def readyz(call: ApiRequest) -> ApiReply:
    """Say that jobs can be accepted now; 503 if not. Send traffic elsewhere meanwhile, but do not restart."""
    try:
        await call.engine.ready()
    except Unavailable as reason:
        if await _may_know(call):
            raise
        logger.warning("not ready: %s", reason)
        # Reasons name paths and addresses, and anyone may ask.
        raise type(reason)("jobs cannot be accepted now; the server's log says why") from None
    return _OK


async def _may_know(call: ApiRequest) -> bool:
    try:
        await call.admit((KeyScope.JOBS_READ,))
    except (Refused, Unavailable):
        return False
    return True


OPERATIONS = (healthz, readyz)
