"""Calls to AWS services: one client per service, a deadline for each call, and what a failed one means.

Region, credentials and endpoints come from the environment, as for every AWS tool (`AWS_REGION`, `AWS_PROFILE`,
`AWS_ENDPOINT_URL_DYNAMODB` and their like). The library is imported when the first client is opened: it takes most of a
second.
"""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import cache
from typing import Any, Self

from penstock.model.errors import InvalidSetting, Unavailable

ATTEMPTS = 3
"""How often the library sends a call that was throttled, got a 5xx or no answer. One answered with a refusal may have
succeeded before: see each caller."""
CONNECTIONS = 64

_DENIED = frozenset({"AccessDeniedException", "AccessDenied", "AuthorizationError", "UnauthorizedOperation"})
_BAD_CREDENTIALS = frozenset(
    {
        "ExpiredTokenException",
        "ExpiredToken",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "UnrecognizedClientException",
    }
)
_THROTTLED = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)


class AwsRefusal(Exception):
    """A service refused a call for what it asks. `code` is AWS's name of the reason; nothing was done by this call."""

    def __init__(self, code: str, message: str, answer: dict[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.answer = answer


class AwsService:
    """The client of one service. What may pass is raised as `error`, a class of Unavailable; the rest as AwsRefusal."""

    def __init__(self, service: str, client: Any, undo: AsyncExitStack, error: type[Unavailable], deadline: timedelta):
        self.service = service
        self._client = client
        self._undo = undo
        self._error = error
        self._deadline = deadline.total_seconds()

    @classmethod
    async def open(
        cls,
        service: str,
        *,
        error: type[Unavailable],
        deadline: timedelta,
        read_timeout: timedelta | None = None,
        region: str | None = None,
    ) -> Self:
        """Open a client; InvalidSetting without a region. Nothing is asked of the service yet.

        `read_timeout` is for calls that wait at the service; they need a `deadline` of their own. `region`: another one
        than the environment's. Among the details of an error, `throttled` and `denied` tell those kinds.
        """
        from aiobotocore.config import AioConfig
        from botocore.exceptions import NoRegionError

        seconds = deadline.total_seconds()
        config = AioConfig(
            connect_timeout=seconds,
            read_timeout=(read_timeout or deadline).total_seconds(),
            max_pool_connections=CONNECTIONS,
            # The service checks the arguments anyway; to check them here as well is a third of a call's CPU time.
            parameter_validation=False,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )
        async with AsyncExitStack() as undo:
            try:
                opening = _session().create_client(service, region_name=region, config=config)
                client = await undo.enter_async_context(opening)
            except NoRegionError:
                raise InvalidSetting(
                    f"no AWS region is set for {service}: set AWS_REGION, for example us-east-1"
                ) from None
            return cls(service, client, undo.pop_all(), error, deadline)

    @property
    def endpoint(self) -> str:
        return str(self._client.meta.endpoint_url)

    async def call(self, action: str, *, deadline: timedelta | None = None, **arguments: Any) -> dict[str, Any]:
        """The answer to one API action, named as AWS names it (`PutItem`)."""
        from botocore import xform_name
        from botocore.exceptions import BotoCoreError, ClientError

        method = getattr(self._client, xform_name(action))
        try:
            async with asyncio.timeout(self._deadline if deadline is None else deadline.total_seconds()):
                answer: dict[str, Any] = await method(**arguments)
        except ClientError as refused:
            raise self._judge(action, refused.response) from None
        except (BotoCoreError, OSError, TimeoutError) as failed:
            raise self._error(f"{self.service} did not answer {action}: {_reason(failed)}") from failed
        return answer

    async def close(self) -> None:
        """End its connections. May be called again."""
        await self._undo.aclose()

    def _right(self, action: str) -> str:
        """What a policy calls the right to an action: that to a batch is the right to one."""
        return f"{self.service}:{action.removesuffix('Batch') if self.service in _BATCHED else action}"

    def _judge(self, action: str, answer: dict[str, Any]) -> Exception:
        told = answer.get("Error", {})
        code, message = str(told.get("Code", "")), str(told.get("Message", ""))
        status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))
        if code in _DENIED:
            denied = f"AWS denies {self._right(action)}: allow this action in the role's policy. {message}"
            return self._error(denied, denied=True)
        if code in _BAD_CREDENTIALS:
            return self._error(f"AWS takes no call with these credentials ({code}): renew them. {message}")
        if code in _THROTTLED or status >= 500:
            busy = f"{self.service} does not take {action} now ({code}): {message}"
            return self._error(busy, throttled=code in _THROTTLED)
        return AwsRefusal(code, message, answer)


@cache
def _session() -> Any:
    """One for the process: it keeps the descriptions of services, which take long to read."""
    from aiobotocore.session import get_session

    return get_session()


_BATCHED = frozenset({"sns", "sqs"})


def _reason(failed: Exception) -> str:
    return str(failed) or type(failed).__name__
