"""A receiver of webhooks on loopback that keeps what it gets and replies as a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Replies with the next of `replies`, and with 204 after them. A reply is what goes over the wire."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: list[bytes] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?tenant=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["Content-Length"]))
        self.requests.append(Request(head[0], headers, body))
        writer.write(self.replies.pop(0) if self.replies else status(204))
        writer.close()


def status(code: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {code} reason", *headers, "", ""]).encode()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver
