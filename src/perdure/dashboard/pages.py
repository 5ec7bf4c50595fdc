"""Serves the built files of the dashboard, from memory: a path is looked up among them and never opened."""

import gzip
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final, NamedTuple

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from elsewhere, no page around it."""

FOR_EVER: Final = "public, max-age=31536000, immutable"
"""Files below `assets/` have the hash of their content in their names."""

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
_COMPRESSED: Final = frozenset({"css", "html", "js", "svg", "txt"})


class BuiltFile(NamedTuple):
    """One file, and the same compressed if that makes it smaller."""

    content: bytes
    compressed: bytes | None
    media_type: str
    etag: str
    caching: str


@cache
def built_files() -> Mapping[str, BuiltFile]:
    """The files by their paths, such as `index.html` and `assets/index-1a2b.js`."""
    pages: dict[str, BuiltFile] = {}
    _collect(files("perdure.dashboard") / "static", "", pages)
    return pages


def _collect(folder: Traversable, prefix: str, pages: dict[str, BuiltFile]) -> None:
    for each in folder.iterdir():
        path = f"{prefix}{each.name}"
        if each.is_dir():
            _collect(each, f"{path}/", pages)
            continue
        content, ending = each.read_bytes(), each.name.rpartition(".")[2]
        if ending not in _TYPES:
            continue
        compressed = gzip.compress(content, 9, mtime=0) if ending in _COMPRESSED else None
        etag = f'"{sha256(content).hexdigest()[:20]}"'
        caching = FOR_EVER if path.startswith("assets/") else "no-cache"
        pages[path] = BuiltFile(content, compressed, _TYPES[ending], etag, caching)


class Pages:
    """An ASGI application of the dashboard's files."""

    def has(self, scope: Scope) -> bool:
        """Whether the request is for one of the files."""
        return scope["method"] in ("GET", "HEAD") and _name(scope) in built_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - files need no body
        page = built_files()[_name(scope)]
        status, content, headers = _answer(page, _headers(scope))
        if scope["method"] == "HEAD":
            content = b""
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": content})


def _name(scope: Scope) -> str:
    """The path of the file that a request is for; that of the page itself is empty."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :]
    return path[1:] or "index.html" if path.startswith("/") else ""


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _answer(page: BuiltFile, request: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
    headers = {
        "Content-Type": page.media_type,
        "Content-Security-Policy": POLICY,
        "Cache-Control": page.caching,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "ETag": page.etag,
        "Referrer-Policy": "no-referrer",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if page.etag in request.get("if-none-match", ""):
        return 304, b"", headers
    content = page.content
    if page.compressed is not None and "gzip" in request.get("accept-encoding", ""):
        content = page.compressed
        headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(content))
    return 200, content, headers
