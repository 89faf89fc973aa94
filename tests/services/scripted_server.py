"""An HTTP server that sends the responses a test has prepared."""

import asyncio


class ScriptedServer:
    """Sends one prepared response per request, in order, and records the requests."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.disconnected = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await self._request(reader):
                self.requests.append(head)
                self.asked.set()
                if self.answers:
                    writer.write(self.answers.pop(0))
        finally:
            self.disconnected.set()
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        return head + await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)


def http_response(status: int, body: bytes, content_type: str, **headers: str) -> bytes:
    named = {"content-type": content_type, "content-length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} Words", *(f"{name.replace('_', '-')}: {value}" for name, value in named.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
