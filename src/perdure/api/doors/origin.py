"""Where a request comes from: this machine, and for browsers the page that sends it."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from perdure.api.problems import Refusal

SAFE: Final = frozenset({"GET", "HEAD"})

_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")


def is_loopback(host: str) -> bool:
    """Whether an address or a name is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local(request: Request) -> bool:
    """Whether the request was made on this machine, and for a name of this machine.

    A request that a proxy forwarded comes from elsewhere. A page of another site, whose name was made to lead here,
    sends its own name.
    """
    client = request.client
    if client is not None and not is_loopback(client.host):
        return False
    if any(name in request.headers for name in _FORWARDED):
        return False
    return is_loopback(_name_of(request.headers.get("host", "")))


def require_same_origin(request: Request) -> None:
    """Refuse a change that a page of another site sends in the name of its reader."""
    if request.method in SAFE:
        return
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        raise _cross_origin(f"Sec-Fetch-Site is {site[:40]!r}")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise _cross_origin(f"the origin is {origin[:100]!r}")


def _cross_origin(what: str) -> Refusal:
    return Refusal(
        403,
        "forbidden",
        f"a page of another site sends this ({what})",
        "send it from a page of this server, or from a program",
    )


def _name_of(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0]
