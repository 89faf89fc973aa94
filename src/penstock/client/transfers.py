"""Files to and from the object store itself, at the URLs that a server names."""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from penstock.client.http import CONNECT_TIMEOUT

if TYPE_CHECKING:
    import httpx2

TRANSFER_SECONDS = 60.0
"""How long a transfer may stand still."""


class TransferBroken(Exception):
    """The object store did not give or take the whole file, or could not be reached."""


class Transfers:
    """Connections of their own: nothing that is meant for Penstock alone goes with them."""

    def __init__(self) -> None:
        self._http: httpx2.AsyncClient | None = None

    async def fetch(self, url: str) -> AsyncIterator[bytes]:
        """The bytes there; TransferBroken where they end too early."""
        import httpx2

        try:
            async with self._connected().stream("GET", url) as answer:
                if not answer.is_success:
                    raise TransferBroken(f"status {answer.status_code}")
                async for chunk in answer.aiter_bytes():
                    yield chunk
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise TransferBroken(str(error) or type(error).__name__) from None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: AsyncIterator[bytes], size: int
    ) -> None:
        """Send the body there; TransferBroken unless it was taken."""
        import httpx2

        told = {**headers, "Content-Length": str(size)}
        try:
            answer = await self._connected().request(method, url, content=body, headers=told)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise TransferBroken(str(error) or type(error).__name__) from None
        if not answer.is_success:
            raise TransferBroken(f"status {answer.status_code}")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    def _connected(self) -> "httpx2.AsyncClient":
        import httpx2

        if self._http is None:
            timeout = httpx2.Timeout(TRANSFER_SECONDS, connect=CONNECT_TIMEOUT.total_seconds())
            self._http = httpx2.AsyncClient(timeout=timeout, trust_env=False)
        return self._http
