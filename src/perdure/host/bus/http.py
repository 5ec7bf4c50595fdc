"""A POST request by HTTP/1.1, to a checked address: no redirects, no proxies, no cookies, one connection a request.

A library's client would resolve the name again when it connects, and an attacker's name server may then name another
address than the one that was checked.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from perdure.core.buses.addresses import is_public
from perdure.core.errors import BusUnavailable, InputError

MAX_HEADERS = 100
MAX_LINE = 16_384


class Target(NamedTuple):
    """A URL in parts."""

    host: str
    port: int
    path: str
    is_secure: bool

    @property
    def authority(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_secure else 80) else f"{name}:{self.port}"


class HttpReply(NamedTuple):
    """Status and headers of a reply, their names in lower case. The body is not read."""

    status: int
    headers: Mapping[str, str]


def parse_url(url: object) -> Target:
    """The target of a URL. Refuses one without a host, with a password, or with characters that end a request line."""
    text = url if isinstance(url, str) else ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    is_plain = text.isascii() and not any(char <= " " or char == "\x7f" for char in text)
    if parts.scheme not in ("http", "https") or not host or not is_plain or "@" in parts.netloc:
        raise InputError(
            "a webhook needs a URL of http or https, without a user and in ASCII",
            "pass 'https://example.com/hook'",
        )
    is_secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(host, port or (443 if is_secure else 80), path, is_secure)


async def addresses(target: Target, *, allow_private: bool) -> list[str]:
    """The addresses of the host that may be connected to. Raises `BusUnavailable` if there is none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise BusUnavailable(
            f"the name {target.host!r} has no address ({error})", "see the URL and the name server"
        ) from error
    ips = list(dict.fromkeys(str(address[4][0]) for address in found))
    allowed = ips if allow_private else [ip for ip in ips if is_public(ip)]
    if not allowed:
        raise BusUnavailable(
            f"{target.host!r} is at {', '.join(ips)}, which is no address of the public internet",
            "pass allow_private=True if the receiver is in your own network",
        )
    return allowed


async def send_post(
    target: Target,
    ips: list[str],
    headers: Mapping[str, str],
    body: bytes,
    context: ssl.SSLContext | None,
) -> HttpReply:
    """Send the request to the first address that accepts a connection, and read the head of the reply."""
    reader, writer = await _connect(target, ips, context)
    try:
        lines = [
            f"POST {target.path} HTTP/1.1",
            f"Host: {target.authority}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        await writer.drain()
        while (reply := await _head(reader)).status < 200:
            pass  # an interim reply, such as 100
        return reply
    except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BusUnavailable(
            f"{target.host!r} did not reply in HTTP/1.1 ({error})", "see what serves the URL"
        ) from error
    finally:
        writer.close()


async def _connect(
    target: Target, ips: list[str], context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = target.host if target.is_secure else None
    failure: OSError | None = None
    for ip in ips:
        try:
            return await asyncio.open_connection(
                ip, target.port, ssl=context, server_hostname=name, limit=MAX_LINE
            )
        except OSError as error:  # a certificate that does not fit is one, too
            failure = error
    raise BusUnavailable(
        f"no connection to {target.host!r}: {failure}", "see whether the receiver runs"
    ) from failure


async def _head(reader: asyncio.StreamReader) -> HttpReply:
    first = (await reader.readuntil(b"\r\n")).decode("latin-1").split(maxsplit=2)
    if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdecimal():
        raise ValueError("no status line")
    headers: dict[str, str] = {}
    for _ in range(MAX_HEADERS):
        line = await reader.readuntil(b"\r\n")
        if line == b"\r\n":
            break
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    else:
        raise ValueError("too many headers")
    return HttpReply(int(first[1]), headers)
